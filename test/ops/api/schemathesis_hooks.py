"""Keeps the fuzzed gateway alive and on this machine, so that every route can be tested."""

import os

import schemathesis

# Nothing listens there: the gateway sends health checks to every worker that is added.
NOWHERE = "http://127.0.0.1:9"
# These workers serve the run. Requests to drain or remove one of them are redirected to the spare one.
SERVING = frozenset(os.environ["ELDR_FUZZ_SERVING"].split(","))
SPARE = os.environ["ELDR_FUZZ_SPARE"]


@schemathesis.hook.apply_to(operation_id="addWorker")
def map_body(ctx, body):
    """Replaces valid URLs. Everything else, including invalid URLs, is sent unchanged."""
    if isinstance(body, dict) and isinstance(body.get("url"), str) and body["url"].lower().startswith(("http://", "https://")):
        return {**body, "url": NOWHERE}
    return body


@schemathesis.hook.apply_to(operation_id=["removeWorker", "drainWorker", "undrainWorker"])
def before_call(ctx, case, kwargs):
    """The fuzzer learns the ids of the serving workers from the list of workers."""
    if case.path_parameters.get("id") in SERVING:
        case.path_parameters["id"] = SPARE
