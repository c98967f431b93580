/**
 * Multi-turn traffic: conversations begin as a Poisson process, and each turn's prompt is everything said so
 * far and a new message. Turns follow at times drawn beforehand, so that all policies see the same arrivals:
 * after the usual time of the response and a pause for thought.
 */
import type { Random } from '../math/random.ts'
import type { RecordedWorkload } from './recorded-workload.ts'

/** Plain data: it is sent to threads. Lengths are uniform between their limits, in tokens. */
export interface ConversationSpec {
  /** Mean number of turns; they are geometric. */
  readonly turns: number
  /** Mean pause between a response and the next turn; pauses are exponential. */
  readonly thinkSeconds: number
  readonly firstTokens: readonly [number, number]
  readonly messageTokens: readonly [number, number]
  readonly outputTokens: readonly [number, number]
  readonly blockTokens: number
  /** Which recorded request a turn replays: another one of the same domain, or that of the turn before. */
  readonly turnsReplay: 'domain' | 'same'
}

export interface ConversationWorkload {
  readonly lengths: RecordedWorkload & { readonly conversations: Int32Array }
  /** [requests] row of the trace. */
  readonly rows: Int32Array
}

/** Usual time between two tokens. */
const TOKEN_SECONDS = 0.015

export function conversationWorkload(
  spec: ConversationSpec,
  rowsOfDomain: readonly (readonly number[])[],
  { seconds, perSecond }: { readonly seconds: number; readonly perSecond: number },
  random: Random,
): ConversationWorkload {
  const between = ([least, most]: readonly [number, number]) => least + random.below(most - least + 1)
  const exponential = (mean: number) => -mean * Math.log(1 - random.uniform())
  const turns: Turn[] = []
  let conversations = 0
  for (let at = 0; (at += exponential(spec.turns / perSecond)) < seconds;) {
    const rows = rowsOfDomain[random.below(rowsOfDomain.length)]!
    const conversation = conversations++
    let row = rows[random.below(rows.length)]!
    let prompt = between(spec.firstTokens)
    for (let time = at; time < seconds;) {
      const output = between(spec.outputTokens)
      turns.push({ time, conversation, row, prompt, output })
      if (spec.turnsReplay !== 'same') row = rows[random.below(rows.length)]!
      if (random.uniform() < 1 / spec.turns) break
      time += output * TOKEN_SECONDS + exponential(spec.thinkSeconds)
      prompt += output + between(spec.messageTokens)
    }
  }
  turns.sort((a, b) => a.time - b.time)
  return { lengths: workloadOf(turns, spec.blockTokens), rows: Int32Array.from(turns, ({ row }) => row) }
}

interface Turn {
  readonly time: number
  readonly conversation: number
  readonly row: number
  readonly prompt: number
  readonly output: number
}

/** Blocks of a turn are numbered within its conversation; those after the prompt are the response's. */
function workloadOf(turns: readonly Turn[], blockTokens: number): ConversationWorkload['lengths'] {
  const starts = new Int32Array(turns.length + 1)
  const ids: number[] = []
  turns.forEach(({ conversation, prompt, output }, at) => {
    const blocks = Math.floor((prompt + output) / blockTokens)
    for (let block = 0; block < blocks; block++) ids.push(conversation * MAX_BLOCKS + block)
    starts[at + 1] = ids.length
  })
  return {
    source: 'conversations',
    timesUs: Float64Array.from(turns, ({ time }) => time * 1e6),
    promptTokens: Int32Array.from(turns, ({ prompt }) => prompt),
    // The decode worker generates the first token again, as a gateway does it.
    outputTokens: Int32Array.from(turns, ({ output }) => output + 1),
    prefixes: { blockTokens, starts, ids: Int32Array.from(ids) },
    conversations: Int32Array.from(turns, ({ conversation }) => conversation),
  }
}

/** More than any conversation has. */
const MAX_BLOCKS = 4_096
