/**
 * Makes prompts of a given length without a tokenizer: token ids, which are exact, or common English words,
 * which nearly every tokenizer maps to one token each. The same seed and labels give the same bytes, so
 * shared prefixes are identical.
 */
import { createRandom } from '../math/random.ts'

export type PromptForm = 'ids' | 'text'

/**
 * Skips special tokens and single bytes below, and ids above that small vocabularies lack (the embedded
 * worker has about 1,200).
 */
const FIRST_ID = 256
const END_ID = 1_024

const WORDS =
  'the of and to in is it you that he was for on are with as his they be at one have this from or had by hot but some what there we can out other were all your when up use word how said an each she which do their time if will way about many then them would write like so these her long make thing see him two has look more day could go come did my sound no most number who over know water than call first people may down side been now find any new work part take get place made live where after back little only round man year came show every good me give our under name very through just form much great think say help low line before turn cause same mean differ move right boy old too does tell sentence set three want air well also play small end put home read hand port large spell add even land here must big high such follow act why ask men change went light kind off need house picture try us again animal point mother world near build self earth father head stand own page should country found answer school grow study still learn plant cover food sun four thought let keep eye never last door between city tree cross since hard start might story saw far sea draw left late run while press close night real life few stop'.split(
    ' ',
  )

/** Part of a prompt; see `joined`. */
export type Piece = Int32Array | string

export function piece(form: PromptForm, tokens: number, seed: number, ...labels: number[]): Piece {
  const random = labels.reduce((source, label) => source.fork(label), createRandom(seed))
  if (form === 'ids')
    return Int32Array.from({ length: tokens }, () => FIRST_ID + random.below(END_ID - FIRST_ID))
  return Array.from({ length: tokens }, () => WORDS[random.below(WORDS.length)]!).join(' ')
}

export function joined(pieces: readonly Piece[]): Piece {
  if (typeof pieces[0] === 'string') return pieces.filter(part => part !== '').join(' ')
  const ids = new Int32Array(pieces.reduce((sum, part) => sum + part.length, 0))
  let at = 0
  for (const part of pieces as readonly Int32Array[]) {
    ids.set(part, at)
    at += part.length
  }
  return ids
}
