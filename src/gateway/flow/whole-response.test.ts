import { describe, expect, it } from 'vitest'
import { vllmNixl } from '../engines/vllm-nixl.ts'
import { readWhole } from './whole-response.ts'

const engine = vllmNixl({ reuseTokenIds: false })

const read = (text: string) => {
  const answer = readWhole(Buffer.from(text), engine)
  return answer && { text: answer.body.toString(), tokens: answer.tokens }
}

describe('an answer that is not streamed', () => {
  it('is passed on as it is, and its tokens are those of its usage', () => {
    const text =
      '{ "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 7}, "kv_transfer_params": null }'
    expect(read(text)).toEqual({ text, tokens: 7 })
  })

  it('does not tell clients where blocks lie', () => {
    const text =
      '{"choices":[],"kv_transfer_params":{"remote_host":"10.0.0.1"},"usage":{"completion_tokens":1}}'
    expect(read(text)).toEqual({ text: '{"choices":[],"usage":{"completion_tokens":1}}', tokens: 1 })
  })

  it.each([
    '{"usage":null}',
    '{"usage":{"completion_tokens":-1}}',
    '{"usage":{"completion_tokens":"many"}}',
    '{}',
  ])('may say nothing of tokens: %s', text => {
    expect(read(text)).toEqual({ text, tokens: 0 })
  })

  it.each(['', 'nonsense', '[]', '{"a":'])('must be an object: %s', text => {
    expect(read(text)).toBeUndefined()
  })
})
