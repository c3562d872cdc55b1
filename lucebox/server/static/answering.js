// Asks the server, and lets an answer grow.

import { ApiError, chat } from "./api.js";
import { Alignment } from "./trace.js";

/** The messages that go before an answer, as the API takes them. */
export function apiMessages(conversation, end = conversation.messages.length) {
  const asked = conversation.system ? [{ role: "system", content: conversation.system }] : [];
  for (const message of conversation.messages.slice(0, end)) {
    const content = message.role === "user" ? message.content : message.content.text;
    if (content || message.role === "user") asked.push({ role: message.role, content });
  }
  return asked;
}

/** Streams into `answer`; `onGrowth()` hears of every chunk. Throws ApiError, AbortError. */
export async function stream(answer, messages, fields, signal, onGrowth) {
  const body = { messages, ...fields, stream: true, stream_options: { include_usage: true, include_tokens: true } };
  const place = new Alignment(answer.trace);
  for await (const chunk of chat(body, signal)) {
    answer.trace.add(chunk);
    for (const choice of chunk.choices) take(answer, choice, place);
    onGrowth();
  }
}

function take(answer, choice, place) {
  const { delta } = choice;
  if (delta.reasoning_content) answer.reasoning.append(delta.reasoning_content, place.find(delta.reasoning_content));
  if (delta.content) answer.content.append(delta.content, place.find(delta.content));
  for (const part of delta.tool_calls ?? []) {
    answer.calls[part.index] ??= { id: part.id, name: "", arguments: "" };
    answer.calls[part.index].name += part.function?.name ?? "";
    answer.calls[part.index].arguments += part.function?.arguments ?? "";
  }
  if (choice.finish_reason) answer.finishReason = choice.finish_reason;
}

/** What a failure means to who reads it: {message, remedy}. */
export function explained(error) {
  if (!(error instanceof ApiError)) return { message: `This page failed: ${error.message}.`, remedy: "Reload it; conversations are kept." };
  return { message: error.message, remedy: remedyOf(error) };
}

function remedyOf(error) {
  if (error.code === "context_length_exceeded") return "Begin a new conversation, shorten this one by editing a message, or start the server with a larger --ctx-size.";
  switch (error.status) {
    case 0:
      return "Try again when the server is back; what was written so far is kept.";
    case 400:
      return error.param ? `Change ${error.param.split(".").pop().replaceAll("_", " ")} in the settings, or what was asked.` : "Change what was asked, or the settings.";
    case 401:
      return "Give the key that the server was started with.";
    case 413:
      return "Shorten the message.";
    case 429:
      return `Others are asking, too: try again${error.retryAfterS ? ` in ${error.retryAfterS} s` : " soon"}.`;
    case 503:
      return "Try again in a moment.";
    default:
      return "The server's log says more.";
  }
}
