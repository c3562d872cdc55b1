"""Plain greedy decoding by llama.cpp, driven over stdin. Its interpreter has `llama_cpp`, but not Lucebox.

Protocol: one JSON line in ({"prompt": [ids], "n_tokens": n}), one out ({"prefill_s", "decode_s", "tokens"}).
"""

import json
import os
import resource
import sys
import time

import llama_cpp
import numpy as np


def main(path: str, n_threads: int, n_ctx: int) -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # llama.cpp prints to stdout as it likes
    started = time.perf_counter()
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = n_ctx
    params.n_threads = params.n_threads_batch = n_threads
    ctx = llama_cpp.llama_init_from_model(model, params)
    n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))

    def decode(tokens: list[int]) -> int:
        array = (llama_cpp.llama_token * len(tokens))(*tokens)
        assert llama_cpp.llama_decode(ctx, llama_cpp.llama_batch_get_one(array, len(tokens))) == 0
        logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(ctx, -1), (n_vocab,))
        return int(logits.argmax())

    decode([0])
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"ready_s": time.perf_counter() - started, "peak_mb": peak_mb}), file=out, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(ctx), True)
        t0 = time.perf_counter()
        token = decode(request["prompt"])
        t1 = time.perf_counter()
        tokens = [token]
        for _ in range(request["n_tokens"]):
            tokens.append(token := decode([token]))
        t2 = time.perf_counter()
        print(json.dumps({"prefill_s": t1 - t0, "decode_s": t2 - t1, "tokens": tokens}), file=out, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
