"""A card that is none: sessions of onnxruntime's CPU provider with the interface and the rules of the CUDA provider.

What a session reads has to be bound, and to lie in the memory of the card; what crosses between host and card is
counted. So a test sees which arrays move and which options the provider gets; kernels of the card it does not see.
"""

from typing import Any

import numpy as np
import onnxruntime
import pytest

MEMORY = "cuda"


class Card:
    """Shapes and bytes that crossed, and the calls; `options` are those of each session."""

    def __init__(self) -> None:
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

    def __init__(self) -> None:
        self.inputs: dict[str, Value] = {}
        self.outputs: dict[str, tuple[str, int]] = {}
        self.made: list[Value] = []

    def bind_ortvalue_input(self, name: str, value: Value) -> None:
        """An input in the card's memory."""
        assert value.place[0] == MEMORY
        self.inputs[name] = value

    def bind_output(self, name: str, device_type: str, device_id: int) -> None:
        """Where a result is made."""
        self.outputs[name] = device_type, device_id

    def get_outputs(self) -> list[Value]:
        """The results, on the card."""
        return self.made


class CardSession:
    """A session that has the CUDA provider and computes on the CPU."""

    def __init__(self, card: Card, session: Any) -> None:
        self._card, self._session = card, session
        self.get_inputs, self.get_outputs = session.get_inputs, session.get_outputs
        self.run, self.end_profiling = self._refuse, session.end_profiling

    def _refuse(self, *_: object) -> None:
        raise AssertionError("a run without binding copies every operand")

    def get_providers(self) -> list[str]:
        """The card first."""
        return ["CUDAExecutionProvider", "CPUExecutionProvider"]

    def get_provider_graph_assignment_info(self) -> list[Any]:
        """All operators are on the card."""
        return [type("Part", (), {"ep_name": "CUDAExecutionProvider", "get_nodes": lambda self: ["node"]})()]

    def io_binding(self) -> Binding:
        """An empty binding."""
        return Binding()

    def run_with_iobinding(self, binding: Binding) -> None:
        """Compute; nothing crosses."""
        self._card.calls += 1
        feeds = {name: value._array for name, value in binding.inputs.items()}
        arrays = self._session.run(list(binding.outputs), feeds)
        places = binding.outputs.values()
        binding.made = [Value(self._card, array, place) for array, place in zip(arrays, places, strict=True)]


def install(monkeypatch: pytest.MonkeyPatch) -> Card:
    """Give onnxruntime a card for the rest of the test."""
    card, real = Card(), onnxruntime.InferenceSession

    def opened(model: bytes, options: Any, providers: list[Any], **rest: Any) -> Any:
        if providers[0] == "CPUExecutionProvider":
            return real(model, options, providers=providers, **rest)
        name, given = providers[0]
        assert (name, providers[1:]) == ("CUDAExecutionProvider", ["CPUExecutionProvider"])
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
    monkeypatch.setattr(
        onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    return card
