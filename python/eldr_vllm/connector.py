"""`EldrConnector`: a KV connector that transfers no KV. vLLM creates one in the scheduler, which forwards
calls to handoff.py, and one in each worker, which forwards them to worker.py. Exceptions at run time do not
reach vLLM: they disable capture permanently, and requests are still served."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import vllm
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorWorkerMetadata,
    SupportsHMA,
)

from . import binding, log, placement, start
from .config import config_of
from .handoff import HandOffs, decode_batch
from .messages import EMPTY_STEP, StepCounts, StepMeta
from .metrics import Tally
from .stats import EldrPromMetrics, EldrStats
from .worker import Worker

KVConnectorMetadata.register(StepMeta)
KVConnectorWorkerMetadata.register(StepCounts)

P = ParamSpec("P")
R = TypeVar("R")
Method = Callable[Concatenate["EldrConnector", P], R]


def guarded(default: Any = None) -> Callable[[Method[P, R]], Method[P, R]]:
    """Wraps a method: an exception disables capture, and the call returns `default`."""

    def wrap(method: Method[P, R]) -> Method[P, R]:
        @wraps(method)
        def call(self: EldrConnector, /, *args: P.args, **kwargs: P.kwargs) -> Any:
            try:
                return method(self, *args, **kwargs)
            except Exception as error:
                self._failed(method.__name__, error)
                return default

        return call

    return wrap


class EldrConnector(KVConnectorBase_V1, SupportsHMA):
    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        transfer = vllm_config.kv_transfer_config
        self.config = config_of(transfer.kv_connector_extra_config, str(transfer.kv_role))
        self._hand_offs: HandOffs | None = None
        self._worker: Worker | None = None
        self._settled = True
        if role == KVConnectorRole.SCHEDULER:
            self._hand_offs = start.hand_offs_of(vllm_config, kv_cache_config, self.config, vllm.__version__)
        else:
            placement.require(self.config)

    @property
    def requires_kv_delivery(self) -> bool:
        return False  # the connector that transfers KV decides

    @property
    def prefer_cross_layer_blocks(self) -> bool:
        """MultiConnector lays out KV blocks across layers (NIXL's enable_cross_layers_blocks, vLLM 0.26) only if all
        its connectors agree. This one does not read KV, so it agrees; alone it asks for nothing."""
        return not binding.is_transfer_group(self)

    def _failed(self, where: str, error: Exception) -> None:
        if self._hand_offs is not None:
            if self._hand_offs.off is None:
                self._hand_offs.off = f"{where} failed: {type(error).__name__}: {error}"
                log.failure("capture is off from now on, requests are served without counts: %s", self._hand_offs.off)
            self._hand_offs.give_up()
        elif self._worker is not None and self._worker.capture is not None:
            self._worker.capture.fail(where, error)

    # ---- scheduler -------------------------------------------------------------------------------

    @guarded()
    def on_new_request(self, request: Any) -> None:
        if self._hand_offs is not None:
            self._hand_offs.follow(request)

    @guarded((0, False))
    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """Under MultiConnector only this call says how much of the prompt is in this worker's own cache."""
        if self._hand_offs is not None:
            self._hand_offs.found_locally(request.request_id, num_computed_tokens)
        return 0, False

    @guarded()
    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if self._hand_offs is not None and self._hand_offs.off is None:
            self._hand_offs.admitted(request, blocks.get_block_ids()[self._hand_offs.group])

    def build_connector_meta(self, scheduler_output: Any) -> StepMeta:
        try:
            if self._hand_offs is not None and self._hand_offs.off is None:
                return self._hand_offs.step(scheduler_output)
        except Exception as error:
            self._failed("build_connector_meta", error)
        tokens = scheduler_output.total_num_scheduled_tokens
        if tokens == 0:
            return EMPTY_STEP
        return StepMeta(tokens, decode_batch(scheduler_output))

    def request_finished(self, request: Any, block_ids: Sequence[int]) -> tuple[bool, dict[str, Any] | None]:
        if self._hand_offs is None:
            return False, None
        aborted = request.status.name == "FINISHED_ABORTED"
        given: dict[str, Any] | None = None
        try:
            given = self._hand_offs.finished(request, aborted)
        except Exception as error:
            self._failed("request_finished", error)
        if given is None and not aborted:
            given = self._hand_offs.excuse(request)
        return False, given

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, dict[str, Any] | None]:
        return self.request_finished(request, ())

    @guarded()
    def update_connector_output(self, connector_output: Any) -> None:
        if self._hand_offs is not None:
            counts = connector_output.kv_connector_worker_meta
            self._hand_offs.received(counts if isinstance(counts, StepCounts) else None)

    # ---- worker ----------------------------------------------------------------------------------

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        placement.check_placed(self._vllm_config, self.config)
        stage = 0
        try:
            rank, stage = binding.ranks()
            # All tensor-parallel ranks route the same tokens in the same way, so only rank 0 captures.
            if rank == 0:
                self._worker = start.worker_of(self._vllm_config, self._kv_cache_config, self.config, kv_caches, stage)
        except Exception as error:
            self._worker = start.off_worker(stage, start.reason(error))

    def register_cross_layers_kv_cache(self, kv_cache: Any, attn_backend: Any) -> None:
        """Called instead of register_kv_caches if all layers share one tensor."""
        self.register_kv_caches({"all layers": kv_cache})

    def bind_connector_metadata(self, connector_metadata: Any) -> None:
        super().bind_connector_metadata(connector_metadata)
        if self._worker is not None:
            self._settled = connector_metadata.tokens == 0
            self._worker.begin(connector_metadata)

    def _settle(self) -> None:
        """Runs once per step, in whichever call vLLM makes first after the forward pass: with speculative
        decoding wait_for_save comes last."""
        if not self._settled and self._worker is not None:
            self._settled = True
            self._worker.end(self._connector_metadata, self.config.metrics)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None: ...

    def wait_for_layer_load(self, layer_name: str) -> None: ...

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None: ...

    @guarded()
    def wait_for_save(self) -> None:
        self._settle()

    @guarded()
    def build_connector_worker_meta(self) -> StepCounts | None:
        meta = self._connector_metadata
        if self._worker is None or meta is None:
            return None
        self._settle()
        return self._worker.answer(meta)

    # ---- metrics ---------------------------------------------------------------------------------

    def get_kv_connector_stats(self) -> EldrStats | None:
        """vLLM calls it twice per step, in the scheduler and in the worker, also in the many steps without tokens: if
        there is nothing to report, it returns before anything else."""
        if self._worker is None or self._worker.tally is None or self._worker.tally.is_empty:
            return None
        return self._stats(self._worker.tally)

    @guarded()
    def _stats(self, tally: Tally) -> EldrStats | None:
        data = tally.take()
        return None if data is None else EldrStats(data)

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> EldrStats:
        return EldrStats(data or {})

    @classmethod
    def build_prom_metrics(
        cls, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: dict[int, list[object]]
    ) -> EldrPromMetrics:
        return EldrPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)
