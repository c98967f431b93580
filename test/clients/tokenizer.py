"""Writes a tokenizer for load clients that want one: a word is a token. Usage: tokenizer.py FOLDER"""

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
vocabulary = {"<unk>": 0, "</s>": 1} | {f"w{number}": number + 2 for number in range(2000)}
tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer.decoder = decoders.Fuse()
tokenizer.save(str(folder / "tokenizer.json"))
config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "eos_token": "</s>", "model_max_length": 4096}
(folder / "tokenizer_config.json").write_text(json.dumps(config))
