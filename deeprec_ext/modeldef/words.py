"""What a model's module and its `feed` are told with: plain values, no TensorFlow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class Mode:
    """What `feed` makes records ready for. In PREDICTION a record may have no label."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    PREDICTION = "prediction"


@dataclass(frozen=True)
class Metadata:
    """What is known of the records besides: of CSV with a header and of Parquet the columns; of others nothing."""

    column_names: Sequence[str] | None = None
    column_dtypes: Mapping[str, Any] = field(default_factory=dict)
    """Column -> NumPy dtype, where the file says it."""


class BasePredictionOutputsProcessor(ABC):
    """What a module may do with predictions, beside or instead of the files of `--output`."""

    @abstractmethod
    def process(self, predictions: Any, worker_id: int) -> None:
        """Called for each batch.

        Args:
          predictions: the model's outputs, tensors whose first dimension is the batch.
          worker_id: of the process, from 0; the chief is 0.
        """
