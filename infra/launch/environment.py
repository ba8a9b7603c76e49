"""Environment of workers and of the server that forks them, where the user has not set it otherwise."""

from __future__ import annotations

WORKER = {
    # Nothing is fetched behind anybody's back; HF_HUB_OFFLINE=0 in the environment allows a hub name as base model.
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "true",
    "TOKENIZERS_PARALLELISM": "false",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    # Threads that spin while they wait are twelve times slower on a machine that does something else as well.
    "OMP_WAIT_POLICY": "PASSIVE",
}
"""Read by the libraries when they are imported."""

FORK_SERVER = {
    # Thread pools of the server would be lost in its forks; a worker sets its own width.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # Asking CUDA itself whether it is there would make it unusable in every fork.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}
"""Over the user's: a fork depends on it."""
