import { describe, expect, it } from 'vitest'
import { vllmNixl } from '../engines/vllm-nixl.ts'
import { readWhole } from './whole-response.ts'

const engine = vllmNixl({ reuseTokenIds: false })

const read = (text: string) => {
  const response = readWhole(Buffer.from(text), engine)
  return response && { text: response.body.toString(), tokens: response.tokens }
}

describe('non-streamed response', () => {
  it('is passed unchanged, and its tokens are read from usage', () => {
    const text =
      '{ "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 7}, "kv_transfer_params": null }'
    expect(read(text)).toEqual({ text, tokens: 7 })
  })

  it('loses kv_transfer_params', () => {
    const text =
      '{"choices":[],"kv_transfer_params":{"remote_host":"10.0.0.1"},"usage":{"completion_tokens":1}}'
    expect(read(text)).toEqual({ text: '{"choices":[],"usage":{"completion_tokens":1}}', tokens: 1 })
  })

  it.each([
    '{"usage":null}',
    '{"usage":{"completion_tokens":-1}}',
    '{"usage":{"completion_tokens":"many"}}',
    '{}',
  ])('has 0 tokens without a valid usage: %s', text => {
    expect(read(text)).toEqual({ text, tokens: 0 })
  })

  it.each(['', 'nonsense', '[]', '{"a":'])('is rejected unless it is a JSON object: %s', text => {
    expect(read(text)).toBeUndefined()
  })
})
