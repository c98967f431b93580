/**
 * Tokens of a prompt that the worker computed, from the usage at the end of its response. Engines report the
 * cached ones if told to (vLLM: --enable-prompt-tokens-details), and in a stream only if the client asks for
 * usage. In a text of the response the quotation marks would be escaped.
 */
const PROMPT = /"prompt_tokens":\s*(\d+)/g
const CACHED = /"cached_tokens":\s*(\d+)/g
/** The usage and what follows it in a stream are shorter. */
const TAIL_BYTES = 4_096

export class UsageReader {
  #tail = ''

  push(chunk: Buffer): void {
    if (chunk.length <= TAIL_BYTES) {
      this.#tail = (this.#tail + chunk.toString('latin1')).slice(-TAIL_BYTES)
      return
    }
    // A non-streamed response may have long fields after it.
    const at = chunk.lastIndexOf('"usage"')
    const from = at < 0 ? chunk.length - TAIL_BYTES : at
    this.#tail = chunk.toString('latin1', from, from + TAIL_BYTES)
  }

  /** Undefined if the worker does not report what it had cached. */
  get computedTokens(): number | undefined {
    const [prompt, cached] = [lastOf(PROMPT, this.#tail), lastOf(CACHED, this.#tail)]
    return prompt === undefined || cached === undefined ? undefined : Math.max(0, prompt - cached)
  }
}

function lastOf(pattern: RegExp, text: string): number | undefined {
  const digits = [...text.matchAll(pattern)].at(-1)?.[1]
  return digits === undefined ? undefined : Number(digits)
}
