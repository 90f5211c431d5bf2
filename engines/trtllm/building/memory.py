"""What an engine takes of a GPU's memory, on paper, before hours are spent on building it.

Weights and KV cache are counted; activations are estimated, since TensorRT decides about them when it builds.
"""

import shutil
import subprocess
from dataclasses import dataclass

from engines.building import BuildError
from engines.trtllm.building.plan import EnginePlan
from engines.trtllm.building.weights import Part, read_weights

GIB = 2**30
KV_FRACTION = 0.9
"""The default share of the memory that is left once the engine is loaded."""
_RUNTIME_BYTES = GIB
"""CUDA context, cuBLAS and NCCL workspaces: about this much, whatever the model."""
_LOGIT_BYTES = 4
_DTYPE_BYTES = 2


@dataclass(frozen=True, slots=True)
class MemoryPage:
    """Bytes on the GPU that holds most."""

    num_parameters: int
    stored_as: str
    weight_bytes: int
    activation_bytes: int
    kv_bytes_per_token: int
    kv_dtype: str
    max_sequence_length: int
    gpu_bytes: int | None

    @property
    def free_bytes(self) -> int | None:
        """What is left for the KV cache. Negative where not even the activations fit."""
        if self.gpu_bytes is None:
            return None
        return int(KV_FRACTION * (self.gpu_bytes - self.weight_bytes - self.activation_bytes))

    def refuse_too_large(self) -> None:
        """Raise BuildError where the weights alone do not fit."""
        if self.gpu_bytes is not None and self.weight_bytes >= self.gpu_bytes:
            raise BuildError(
                f"the weights alone take {_gib(self.weight_bytes)} of each GPU, which has {_gib(self.gpu_bytes)}: "
                "spread them over more GPUs (--tp, --pp) or store them in fewer bits (--quantization)"
            )

    def __str__(self) -> str:
        lines = [
            "memory per GPU, on paper:",
            f"  weights      {_gib(self.weight_bytes):>10}  {self.num_parameters / 1e9:.2f} billion, {self.stored_as}",
            f"  activations  {_gib(self.activation_bytes):>10}  an estimate",
            f"  KV cache     {self.kv_bytes_per_token / 1024:>6.1f} KiB  per token, {self.kv_dtype}",
        ]
        return "\n".join((*lines, *self._room()))

    def _room(self) -> tuple[str, ...]:
        free = self.free_bytes
        if self.gpu_bytes is None or free is None:
            return ("  GPU             unknown  no nvidia-smi here: name its memory with --gpu-memory-gib",)
        gpu = f"  GPU          {_gib(self.gpu_bytes):>10}"
        if free < self.kv_bytes_per_token:
            return (f"{gpu}  the weights fit, and nothing beside them: lower --max-num-tokens, raise --tp",)
        tokens = free // self.kv_bytes_per_token
        sequences = tokens / self.max_sequence_length
        return (
            f"{gpu}  {KV_FRACTION:.0%} of the rest hold {tokens} tokens of KV cache:",
            f"                           {sequences:.1f} sequences of {self.max_sequence_length} tokens at a time",
        )


def count_memory(plan: EnginePlan, gpu_bytes: int | None) -> MemoryPage:
    """Count an engine's memory. Raises BuildError for damaged weight files, TensorRTLLMError for unknown shapes."""
    options, shape = plan.options, plan.checkpoint.shape
    weights = read_weights(plan.checkpoint.path)
    tensor, pipeline = options.tensor_parallel_size, options.pipeline_parallel_size
    layers = _stored(weights.layers, plan) / tensor * -(-shape.num_layers // pipeline) / shape.num_layers
    output = weights.output if weights.output.num_parameters else weights.embedding  # tied: a copy of the embedding
    ends = (_plain(weights.embedding), _plain(output) / tensor)  # the embedding is not split
    weight_bytes = layers + (sum(ends) if pipeline == 1 else max(ends))
    kv_dtype = plan.kv_cache_dtype
    return MemoryPage(
        num_parameters=weights.num_parameters,
        stored_as=_stored_as(plan),
        weight_bytes=int(weight_bytes),
        activation_bytes=_activation_bytes(plan),
        kv_bytes_per_token=shape.kv_bytes_per_token(plan.dtype if kv_dtype == "auto" else kv_dtype, tensor, pipeline),
        kv_dtype=plan.dtype if kv_dtype == "auto" else kv_dtype,
        max_sequence_length=plan.max_sequence_length,
        gpu_bytes=gpu_bytes,
    )


def gpu_memory_bytes() -> int | None:
    """Ask nvidia-smi for the memory of the smallest GPU; None where there is none."""
    if shutil.which("nvidia-smi") is None:
        return None
    query = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    answer = subprocess.run(query, capture_output=True, text=True, check=False)
    sizes = [int(line) for line in answer.stdout.split() if line.isdigit()]
    return min(sizes) * 2**20 if answer.returncode == 0 and sizes else None


def _stored(part: Part, plan: EnginePlan) -> float:
    """Matrices of the layers; what is not a matrix is too small to matter."""
    if plan.checkpoint.quantisation is not None:  # packed already
        return part.size_bytes
    bits = plan.quantisation.bits
    return _plain(part) if bits is None else part.num_parameters * bits / 8


def _plain(part: Part) -> float:
    """Embedding and output layer stay in 16 bits whatever the quantisation."""
    return part.num_parameters * _DTYPE_BYTES


def _stored_as(plan: EnginePlan) -> str:
    method = plan.checkpoint.quantisation or plan.options.quantization
    return f"in {plan.dtype}" if method == "none" else f"layers in {method}, embedding and output layer in {plan.dtype}"


def _activation_bytes(plan: EnginePlan) -> int:
    """The widest place of a layer for all tokens of a step, the logits, and the images of a batch."""
    options, shape, checkpoint = plan.options, plan.checkpoint.shape, plan.checkpoint
    intermediate = checkpoint.number("intermediate_size") // options.tensor_parallel_size
    per_token = _DTYPE_BYTES * (4 * shape.hidden_size + 3 * intermediate)
    rows = options.max_num_tokens if options.gather_logits and options.lookahead is None else options.max_batch_size
    if options.lookahead is not None:
        rows *= options.lookahead.max_draft_len + 1
    logits = rows * shape.vocab_size * _LOGIT_BYTES
    images = plan.max_multimodal_len * shape.hidden_size * _DTYPE_BYTES
    return _RUNTIME_BYTES + options.max_num_tokens * per_token + logits + images


def _gib(size_bytes: float) -> str:
    return f"{size_bytes / GIB:.1f} GiB"
