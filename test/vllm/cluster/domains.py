"""Short prompts of four domains that the model was trained on, generated from templates; deterministic by seed."""

from __future__ import annotations

import json
import random
from pathlib import Path

NAMES = ["count", "total", "index", "value", "width", "limit", "offset", "result", "buffer", "score"]
PARTS: dict[str, list[str]] = {
    "code": [
        "def {a}_of(items):\n    {b} = 0\n    for item in items:\n        if item > {n}:\n            {b} += item\n    return {b}\n\n",
        "class {A}:\n    def __init__(self, {a}):\n        self.{a} = {a}\n\n    def {b}(self):\n        return self.{a} * {n}\n\n",
        "function {a}({b}) {{\n  const {c} = []\n  for (let i = 0; i < {n}; i++) {c}.push({b}[i])\n  return {c}\n}}\n\n",
        "import os\nimport sys\n\nwith open(sys.argv[{n}]) as file:\n    {a} = [line.strip() for line in file]\nprint(len({a}))\n\n",
    ],
    "law": [
        "The court held that the defendant, under section {n} of the Act, had breached its duty to the plaintiff. ",
        "Article {n}. The parties agree that any dispute arising from this contract shall be settled by the courts of the State. ",
        "Pursuant to paragraph {n}, the tenant shall give notice in writing to the landlord before the term of the lease ends. ",
        "The motion for summary judgment was denied on count {n}, since a genuine issue of material fact remained for trial. ",
    ],
    "chinese": [
        "我们今天一共有{n}个人去公园散步，天气很好，大家都很高兴。",
        "这本书介绍了中国的历史和文化，一共有{n}章，内容非常丰富。",
        "他在北京工作了{n}年，后来回到家乡开了一家小饭馆。",
        "科学家发现，这种植物在{n}度以上的温度下生长得更快。",
    ],
    "russian": [
        "В городе было {n} школ, и каждая из них имела свою библиотеку и небольшой сад. ",
        "Он долго шёл по дороге и через {n} часов увидел на берегу реки старый дом. ",
        "Учёные изучили {n} образцов и пришли к выводу, что вода здесь очень чистая. ",
        "Весной {n} студентов поехали на север, чтобы узнать больше о жизни в деревне. ",
    ],
}


def made(per_domain: int, seed: int) -> list[tuple[str, str]]:
    """Pairs of domain and prompt, alternating domains."""
    rng = random.Random(seed)
    return [(domain, prompt_of(domain, rng)) for _ in range(per_domain) for domain in PARTS]


def prompt_of(domain: str, rng: random.Random) -> str:
    def sentence() -> str:
        a, b, c = rng.sample(NAMES, 3)
        return rng.choice(PARTS[domain]).format(a=a, A=a.capitalize(), b=b, c=c, n=rng.randint(2, 99))

    return "".join(sentence() for _ in range(rng.randint(2, 4)))


def write(path: Path, rows: list[tuple[str, str]]) -> Path:
    lines = (json.dumps({"prompt": prompt, "domain": domain}, ensure_ascii=False) + "\n" for domain, prompt in rows)
    path.write_text("".join(lines), encoding="utf-8")
    return path
