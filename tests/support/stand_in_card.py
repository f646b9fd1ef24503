"""A card that is none: sessions of onnxruntime's CPU provider with the interface and the rules of CUDA's or CANN's.

What a session reads has to be bound, and to lie in the memory of the card; what crosses between host and card is
counted. So a test sees which arrays move and which options the provider gets; kernels of the card it does not see.
Like the providers, it refuses an option that it does not know.
"""

from typing import Any

import numpy as np
import onnxruntime
import pytest

from runner.device import BACKENDS

OPTIONS = {  # of onnxruntime-gpu 1.31 and onnxruntime-cann 1.24, those that are texts, switches or numbers
    "GPU": {
        *("device_id", "gpu_mem_limit", "arena_extend_strategy", "cudnn_conv_algo_search", "use_tf32", "prefer_nhwc"),
        *("do_copy_in_default_stream", "cudnn_conv_use_max_workspace", "cudnn_conv1d_pad_to_nc1d"),
        *("enable_cuda_graph", "use_ep_level_unified_stream", "fuse_conv_bias", "sdpa_kernel"),
    },
    "Ascend": {
        *("device_id", "npu_mem_limit", "arena_extend_strategy", "enable_cann_graph", "enable_cann_subgraph"),
        *("dump_graphs", "dump_om_model", "precision_mode", "op_select_impl_mode", "optypelist_for_implmode"),
    },
}


class Card:
    """Shapes and bytes that crossed, and the calls; `options` are those of each session."""

    def __init__(self, target: str) -> None:
        self.target, self.backend = target, BACKENDS[target]
        self.options: list[dict[str, str]] = []
        self.deterministic: list[bool] = []
        self.models: list[bytes] = []
        self.uploads: list[np.ndarray] = []
        self.downloads: list[np.ndarray] = []
        self.calls = 0

    def forget(self) -> None:
        """Count from 0."""
        self.calls = 0
        self.uploads.clear()
        self.downloads.clear()


class Value:
    """A value in the card's memory."""

    def __init__(self, card: Card, array: np.ndarray, place: tuple[str, int]) -> None:
        self.card, self.place, self._array = card, place, array

    def numpy(self) -> np.ndarray:
        """Copy it to the host."""
        self.card.downloads.append(self._array)
        return self._array.copy()


class Binding:
    """Inputs and places of outputs of one run."""

    def __init__(self, memory: str) -> None:
        self.memory = memory
        self.inputs: dict[str, Value] = {}
        self.outputs: dict[str, tuple[str, int]] = {}
        self.made: list[Value] = []

    def bind_ortvalue_input(self, name: str, value: Value) -> None:
        """An input in the card's memory."""
        assert value.place[0] == self.memory
        self.inputs[name] = value

    def bind_output(self, name: str, device_type: str, device_id: int) -> None:
        """Where a result is made."""
        self.outputs[name] = device_type, device_id

    def get_outputs(self) -> list[Value]:
        """The results, on the card."""
        return self.made


class CardSession:
    """A session that has the provider of the card and computes on the CPU."""

    def __init__(self, card: Card, session: Any) -> None:
        self._card, self._session = card, session
        self.get_inputs, self.get_outputs = session.get_inputs, session.get_outputs
        self.run, self.end_profiling = self._refuse, session.end_profiling

    def _refuse(self, *_: object) -> None:
        raise AssertionError("a run without binding copies every operand")

    def get_providers(self) -> list[str]:
        """The card first."""
        return [self._card.backend.provider, "CPUExecutionProvider"]

    def get_provider_graph_assignment_info(self) -> list[Any]:
        """All operators are on the card."""
        return [type("Part", (), {"ep_name": self._card.backend.provider, "get_nodes": lambda self: ["node"]})()]

    def io_binding(self) -> Binding:
        """An empty binding."""
        return Binding(self._card.backend.memory)

    def run_with_iobinding(self, binding: Binding) -> None:
        """Compute; nothing crosses."""
        self._card.calls += 1
        feeds = {name: value._array for name, value in binding.inputs.items()}
        arrays = self._session.run(list(binding.outputs), feeds)
        places = binding.outputs.values()
        binding.made = [Value(self._card, array, place) for array, place in zip(arrays, places, strict=True)]


def install(monkeypatch: pytest.MonkeyPatch, target: str = "GPU") -> Card:
    """Give onnxruntime a card for the rest of the test."""
    card, real = Card(target), onnxruntime.InferenceSession

    def opened(model: bytes, options: Any, providers: list[Any], **rest: Any) -> Any:
        if providers[0] == "CPUExecutionProvider":
            return real(model, options, providers=providers, **rest)
        name, given = providers[0]
        assert (name, providers[1:]) == (card.backend.provider, ["CPUExecutionProvider"])
        assert given.keys() <= OPTIONS[target]
        assert all(type(value) is str for value in given.values())
        card.options.append(given)
        card.models.append(model)
        card.deterministic.append(options.use_deterministic_compute)
        return CardSession(card, real(model, options, providers=["CPUExecutionProvider"], **rest))

    class OrtValue:
        @staticmethod
        def ortvalue_from_numpy(array: np.ndarray, device_type: str, device_id: int) -> Value:
            card.uploads.append(array.copy())
            return Value(card, array.copy(), (device_type, device_id))

    monkeypatch.setattr(onnxruntime, "InferenceSession", opened)
    monkeypatch.setattr(onnxruntime, "OrtValue", OrtValue)
    monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: None, raising=False)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [card.backend.provider, "CPUExecutionProvider"])
    return card
