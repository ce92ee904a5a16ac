"""What TRL's trainers of pairs and of judged completions lack, to be put before one of them in a class.

TRL 1.16 renders conversations and takes no tokens in their place. It scores the reference in training mode, so a frozen
copy of an adapter keeps its dropout, and a model its own. The Trainer of transformers averages the micro-batches of a
gradient step, so the rows of a smaller last one weigh more; where processes share an epoch that they cannot divide,
accelerate fills the last micro-batches up with rows of its beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from g2d.regimes.processes import n_processes
from g2d.regimes.training import evaluation_mode

if TYPE_CHECKING:
    import torch

SAME = 1e-3  # of the log-probabilities: what policy and reference may differ by, as the same passes score both
SAME_ONCE = 1e-2  # or as others did, in other batches and so with other rounding in bfloat16


class TakesTokens:
    """Before a TRL trainer: its rows are what its collator reads, tokens. TRL would make them, by the chat template,
    from conversations and so train on other tokens than were drawn (`g2d.rollouts.tokens`)."""

    def _prepare_dataset(self, dataset: Any, *_args: Any, **_keywords: Any) -> Any:
        return dataset


class FixedReference:
    """Before TRL's DPO and KTO trainers: the reference is scored in evaluation mode, and training begins at it."""

    begins_at_reference = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._compared = False
        super().__init__(*args, **kwargs)

    def compute_ref_log_probs(self, model: Any, inputs: dict[str, Any]) -> Any:
        """As TRL, without dropout."""
        with evaluation_mode(self.model):  # type: ignore[attr-defined]
            return super().compute_ref_log_probs(model, inputs)  # type: ignore[misc]

    def reference(self, model: Any, inputs: dict[str, Any], once: Sequence[Any] | None = None) -> Sequence[Any]:
        """Log-probabilities of a micro-batch under the reference, as `compute_ref_log_probs` has them.

        Before the first update, those of the policy are compared with them, also without dropout.

        Args:
            once: what was computed before the training.

        Raises:
            RuntimeError: the training does not begin at its reference.
        """
        found: Sequence[Any] = self.compute_ref_log_probs(model, inputs) if once is None else once
        if self.begins_at_reference and not self._compared and self.state.global_step == 0:  # type: ignore[attr-defined]
            self.ref_model, known = model, self.ref_model  # what TRL then scores in place of an adapter
            try:
                policy = self.compute_ref_log_probs(model, inputs)
            finally:
                self.ref_model = known
            for own, other in zip(policy, found, strict=True):
                require_same(own, other, SAME if once is None else SAME_ONCE)
            self._compared = True
        return found


def require_same(policy: torch.Tensor, reference: torch.Tensor, tolerance: float) -> None:
    """Check that a training begins at its reference.

    Args:
        policy: log-probabilities of completions, (rows,).
        reference: the same under the reference.
        tolerance: by how much of their sum they may differ.

    Raises:
        RuntimeError: they differ by more.
    """
    apart, whole = float((policy - reference).abs().sum()), float(reference.abs().sum())
    if not apart <= tolerance * whole:
        raise RuntimeError(
            f"before the first step the log-probabilities of {len(policy)} completions under policy and reference are "
            f"{apart:.4g} nats apart, of {whole:.4g}: the reference is not the policy that training starts from"
        )


class EqualRows:
    """Before one of TRL's trainers: `weighed` is told the rows of every micro-batch that are not there for the second
    time, and how many of them all processes have in this gradient step."""

    def _get_num_items_in_batch(self, batches: list[dict[str, Any]], device: Any) -> Any:
        """The Trainer calls this with the micro-batches of a gradient step."""
        last = self.accelerator.gradient_state.end_of_dataloader  # type: ignore[attr-defined]
        rows, total = own_rows(
            [self.rows(batch) for batch in batches],
            size=self.args.per_device_train_batch_size,  # type: ignore[attr-defined]
            ends_at=len(self.train_dataset) if last else None,  # type: ignore[attr-defined]
            rank=self.accelerator.process_index,  # type: ignore[attr-defined]
            processes=n_processes(),
        )
        for batch, own in zip(batches, rows, strict=True):
            self.weigh(batch, own, len(batches) * n_processes() / total)  # 1 / rows where all micro-batches are whole
        return super()._get_num_items_in_batch(batches, device)  # type: ignore[misc]

    def rows(self, batch: dict[str, Any]) -> int:
        """Rows of a micro-batch."""
        return len(batch["input_ids"])

    def weigh(self, batch: dict[str, Any], own: int, weight: float) -> None:
        """Put into a micro-batch the weights of its rows, `weight` for the first `own` and 0 for the others, for a loss
        that the Trainer then averages over micro-batches and processes."""
        import torch

        weights = torch.zeros(self.rows(batch))
        weights[:own] = weight
        batch["weights"] = weights


def own_rows(
    sizes: Sequence[int], *, size: int, ends_at: int | None, rank: int, processes: int
) -> tuple[list[int], int]:
    """Rows of each micro-batch of a gradient step that its epoch has not had before, and all of them in this step.

    Args:
        sizes: rows of each micro-batch of this process.
        size: of a whole one.
        ends_at: rows of an epoch, where the last micro-batch is its last; else None.
        rank: of this process. The micro-batches are dealt to the processes one after another.
    """
    if processes == 1:
        return [*sizes], sum(sizes)
    rows, at_once = [*sizes], size * processes
    total = len(rows) * at_once
    if rows and ends_at is not None and (left := ends_at % at_once):
        rows[-1] = min(max(left - rank * size, 0), size)
        total += left - at_once
    return rows, total
