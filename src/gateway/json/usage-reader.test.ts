import { describe, expect, it } from 'vitest'
import { UsageReader } from './usage-reader.ts'

const USAGE = '"usage":{"prompt_tokens":300,"total_tokens":304,"prompt_tokens_details":{"cached_tokens":256}}'
function read(...chunks: string[]): number | undefined {
  const reader = new UsageReader()
  for (const chunk of chunks) reader.push(Buffer.from(chunk))
  return reader.computedTokens
}

describe('the prompt tokens that a worker computed', () => {
  it('are read from the usage at the end, wherever chunks are cut', () => {
    const text = `data: {"choices":[],${USAGE}}\n\ndata: [DONE]\n\n`
    for (let at = 0; at < text.length; at++)
      expect(read('data: {"choices":[1]}\n\n', text.slice(0, at), text.slice(at))).toBe(44)
  })

  it('are read from a response with long fields before and after', () => {
    const long = `"ids":[${Array(5000).fill(1).join()}]`
    expect(read(`{${long},${USAGE},${long}}`)).toBe(44)
  })

  it('are unknown if the worker reports no cached tokens, and not taken from text', () => {
    expect(read('{"usage":{"prompt_tokens":300,"prompt_tokens_details":null}}')).toBeUndefined()
    const text = JSON.stringify({ content: '"prompt_tokens":9,"cached_tokens":1' })
    expect(read(`{"choices":[${text}]}`)).toBeUndefined()
  })
})
