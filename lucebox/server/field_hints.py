"""What to send instead of fields that users know from other servers."""

from __future__ import annotations

from collections.abc import Mapping

_GRAMMAR = "Send 'response_format' for JSON, or 'grammar'."
_NO_MIROSTAT = "Mirostat is not among this server's samplers."

# Names of llama.cpp, vLLM, Ollama and clients' own; what only sounds like one of ours is guessed elsewhere.
HINTS: Mapping[str, str] = {
    "extra_body": "That is a client's argument: send what is in it beside the other fields.",
    "n_predict": "This server calls it 'max_tokens'.",
    "num_predict": "This server calls it 'max_tokens'.",
    "max_new_tokens": "This server calls it 'max_tokens'.",
    "max_output_tokens": "This server calls it 'max_tokens'.",
    "min_tokens": "A least length cannot be asked for; 'ignore_eos' with 'max_tokens' gives an exact one.",
    "repeat_penalty": "This server calls it 'repetition_penalty'.",
    "repeat_last_n": "'repetition_penalty' sees the whole text, and 'dry_penalty_last_n' bounds DRY.",
    "typ_p": "This server calls it 'typical_p'.",
    "n_probs": "Send 'logprobs', and 'top_logprobs' to /v1/chat/completions.",
    "prompt_logprobs": "Send 'echo' and 'logprobs' to /v1/completions.",
    "dry_range": "This server calls it 'dry_penalty_last_n'.",
    "samplers": "The order of samplers is fixed; the README has it.",
    "sampler_seed": "This server calls it 'seed'.",
    "mirostat": _NO_MIROSTAT,
    "mirostat_tau": _NO_MIROSTAT,
    "mirostat_eta": _NO_MIROSTAT,
    "tfs_z": "Tail-free sampling is not among this server's samplers; 'typical_p' and 'min_p' are.",
    "top_a": "Top-a sampling is not among this server's samplers; 'min_p' is.",
    "top_n_sigma": "Top-n-sigma sampling is not among this server's samplers; 'min_p' is.",
    "guided_json": _GRAMMAR,
    "guided_regex": _GRAMMAR,
    "guided_choice": _GRAMMAR,
    "guided_grammar": _GRAMMAR,
    "structured_outputs": _GRAMMAR,
    "json_schema": _GRAMMAR,
    "format": _GRAMMAR,
    "cache_prompt": "Prompts are always cached, and answers do not depend on it.",
    "id_slot": "Requests cannot choose a slot; prefixes are shared among all of them.",
    "use_beam_search": "Beam search is not among what this server does; 'best_of' is.",
    "length_penalty": "Beam search is not among what this server does; 'best_of' is.",
    "stop_token_ids": "Send 'stop' with the text; the model's own end tokens always end an answer.",
    "skip_special_tokens": "Control tokens are never part of the text.",
    "include_stop_str_in_output": "Stop strings are never part of the text.",
    "enable_thinking": "Send 'reasoning_effort', or 'chat_template_kwargs' with it.",
    "draft_max": "Send 'speculative' with 'draft_length'.",
    "speculative.n_max": "Send 'speculative' with 'draft_length'.",
    "prompt": "That is a field of /v1/completions; here, send 'messages'.",
    "messages": "That is a field of /v1/chat/completions; here, send 'prompt'.",
}
