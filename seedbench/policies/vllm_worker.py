"""What vLLM's worker processes are given beside their own methods: loading a checkpoint whole.

Named to vLLM as `worker_extension_cls`; nothing else imports this module, and it imports vLLM only when called.
"""

from __future__ import annotations

from typing import Any


class Reloading:
    """Mixed into vLLM's worker, whose `reload_weights`, `get_model` and `device` it uses."""

    device: Any
    get_model: Any
    reload_weights: Any

    def reload_checkpoint(self, folder: str) -> None:
        """Replace all weights by those of a Hugging Face folder of the same architecture."""
        from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

        self.reload_weights(weights_path=folder)
        if self.device.type != "cpu":
            return
        for module in self.get_model().modules():
            # On CPUs products are taken with a packed copy of a matrix. vLLM 0.32 leaves the old copy of an output
            # layer that shares the embedding's weights, because no weights of its own were loaded.
            if isinstance(module, ParallelLMHead):
                module.quant_method.process_weights_after_loading(module)
