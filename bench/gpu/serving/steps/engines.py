"""The servers of the experiments. A step takes over what an earlier one left running, if it is the same."""

from __future__ import annotations

from lab.engines import FINE_SIZES, NARROW, Engine, both, eldr, multi, nixl

from .common import Context

HALF_LIFE = 64


def alone(context: Context, model: str = "wide", **settings: object) -> Engine:
    """One engine alone on the GPU, which records its steps and can be calibrated on. In a dry run it also captures
    twice."""
    twin = {"twin": twin_file(context, "alone")} if context.is_dry else {}
    return Engine(
        "alone",
        model=model,
        transfer=eldr("kv_both", half_life=HALF_LIFE, metrics=True),
        graph_sizes=FINE_SIZES,
        block_size=128,
        prefix_caching=False,
        inside={"steps": context.steps_file("alone"), **twin},
        **settings,  # type: ignore[arg-type]
    )


def twin_file(context: Context, name: str) -> str:
    """What the second capture of a server found."""
    return str(context.lab.stage.run / f"{name}.twin.json")


def served(context: Context, decoders: int) -> list[Engine]:
    """One prefill and some decode engines. Decoders share the GPU, so what is not decode is kept off it: prefill
    runs tiny6 as it is, which has the same function and KV cache."""
    prefill = Engine(
        "p", transfer=both("kv_producer", half_life=HALF_LIFE), overrides=NARROW, block_size=128, prefix_caching=False, max_requests=128
    )
    return [prefill, *(decoder(context, f"d{index}") for index in range(decoders))]


def decoder(context: Context, name: str) -> Engine:
    return Engine(
        name,
        transfer=both("kv_consumer"),
        graph_sizes=FINE_SIZES,
        block_size=128,
        prefix_caching=False,
        inside={"steps": context.steps_file(name)},
    )


def reader(model: str = "wide") -> Engine:
    """A small decode engine that reads hand-offs, so that their blocks are freed."""
    small = NARROW if model == "wide" else {"moe_intermediate_size": 64}
    return Engine(
        "reader",
        model=model,
        transfer=nixl("kv_consumer"),
        overrides=small | LONG,
        block_size=128,
        prefix_caching=False,
        max_step_tokens=4096,
        max_len=2304,
    )


# tiny6 was trained on 2,048 positions; a prompt of 2,048 tokens needs one more.
LONG = {"max_position_embeddings": 4096}


def prefill(
    name: str, transfer: dict[str, object], model: str = "wide", inside: dict[str, object] | None = None, share: float = 0.1
) -> Engine:
    return Engine(
        name,
        model=model,
        transfer=transfer,
        overrides=LONG,
        block_size=128,
        prefix_caching=False,
        max_step_tokens=4096,
        max_len=2304,
        inside=inside or {},
        share=share,
    )


def cost_servers(context: Context, model: str) -> list[Engine]:
    """A prefill server with the plugin, whose capture can be switched off and has timers, one without, and a reader.
    In a dry run other steps use them too, so that few servers start."""
    share = 0.1 if model == "wide" else 0.42
    inside: dict[str, object] = {"switch": switch_file(context), "timers": str(context.lab.stage.run / "timers")}
    return [
        prefill("with", with_plugin(), model, inside | {"spans": spans_file(context, "with")}, share),
        prefill("without", plain(), model, {"spans": spans_file(context, "without")}, share),
        reader(model),
    ]


def spans_file(context: Context, name: str) -> str:
    return str(context.lab.stage.run / f"{name}.spans")


def switch_file(context: Context) -> str:
    """Turns the capture of the server with the plugin on and off."""
    return str(context.lab.stage.run / "capture.switch")


def plain() -> dict[str, object]:
    return nixl("kv_producer")


def with_plugin(**settings: object) -> dict[str, object]:
    return both("kv_producer", half_life=HALF_LIFE, **settings)


def multi_alone() -> dict[str, object]:
    """MultiConnector around NIXL, without the plugin."""
    return multi("kv_producer", nixl("kv_producer"))


def idle_plugin() -> dict[str, object]:
    """The plugin with capture off."""
    return multi("kv_producer", nixl("kv_producer"), eldr("kv_producer", capture=False))
