/** A DNS server for tests, over UDP. It serves the records of the test, by name and type. */
import { createSocket, type Socket } from 'node:dgram'
import { once } from 'node:events'

const TYPE = { A: 1, AAAA: 28, SRV: 33 } as const
const RCODE = { NOERROR: 0, SERVFAIL: 2, NXDOMAIN: 3, REFUSED: 5 } as const

export type DnsRecord =
  | { readonly type: 'A'; readonly address: string }
  | { readonly type: 'AAAA'; readonly address: string }
  | { readonly type: 'SRV'; readonly target: string; readonly port: number }

export class DnsServer {
  readonly records = new Map<string, readonly DnsRecord[]>()
  /** Fault of every response; `silence` sends none. */
  trouble: keyof typeof RCODE | 'silence' | undefined
  ttlSeconds = 1
  readonly questions: string[] = []
  readonly #socket: Socket
  readonly #waiting = new Set<() => void>()

  private constructor(socket: Socket) {
    this.#socket = socket
    socket.on('message', (query, { port, address }) => {
      const answer = this.#answer(query)
      if (answer !== undefined) socket.send(answer, port, address)
      for (const wake of this.#waiting) wake()
      this.#waiting.clear()
    })
  }

  static async start(): Promise<DnsServer> {
    const socket = createSocket('udp4')
    socket.bind(0, '127.0.0.1')
    await once(socket, 'listening')
    return new DnsServer(socket)
  }

  get address(): string {
    return `127.0.0.1:${this.#socket.address().port}`
  }

  /** Resolves after this many more queries. */
  async asked(more: number): Promise<void> {
    const until = this.questions.length + more
    while (this.questions.length < until) await new Promise<void>(resolve => this.#waiting.add(resolve))
  }

  close(): Promise<void> {
    return new Promise(resolve => this.#socket.close(() => resolve()))
  }

  #answer(query: Buffer): Buffer | undefined {
    const labels: string[] = []
    let at = 12
    for (let length = query[at]!; length > 0; length = query[at]!) {
      labels.push(query.toString('latin1', at + 1, at + 1 + length))
      at += 1 + length
    }
    const type = query.readUInt16BE(at + 1)
    const question = query.subarray(12, at + 5)
    const name = labels.join('.').toLowerCase()
    this.questions.push(`${name} ${Object.entries(TYPE).find(([, number]) => number === type)?.[0] ?? type}`)
    if (this.trouble === 'silence') return undefined
    const all = this.records.get(name)
    const rcode = RCODE[this.trouble ?? (all === undefined ? 'NXDOMAIN' : 'NOERROR')]
    const answers = this.trouble === undefined ? (all ?? []).filter(record => TYPE[record.type] === type) : []
    const head = Buffer.alloc(12)
    query.copy(head, 0, 0, 2)
    head.writeUInt16BE(0x8400 | (query.readUInt16BE(2) & 0x0100) | rcode, 2)
    head.writeUInt16BE(1, 4)
    head.writeUInt16BE(answers.length, 6)
    return Buffer.concat([head, question, ...answers.map(record => this.#record(record))])
  }

  #record(record: DnsRecord): Buffer {
    const data = dataOf(record)
    const head = Buffer.alloc(12)
    head.writeUInt16BE(0xc00c, 0) // the name of the question
    head.writeUInt16BE(TYPE[record.type], 2)
    head.writeUInt16BE(1, 4)
    head.writeUInt32BE(this.ttlSeconds, 6)
    head.writeUInt16BE(data.length, 10)
    return Buffer.concat([head, data])
  }
}

function dataOf(record: DnsRecord): Buffer {
  if (record.type === 'A') return Buffer.from(record.address.split('.').map(Number))
  if (record.type === 'AAAA') {
    const [left, right = ''] = record.address.split('::')
    const words = (text: string) =>
      text
        .split(':')
        .filter(word => word !== '')
        .map(word => Number.parseInt(word, 16))
    const [first, last] = [words(left!), words(right)]
    const all = [...first, ...Array.from({ length: 8 - first.length - last.length }, () => 0), ...last]
    return Buffer.from(all.flatMap(word => [word >> 8, word & 0xff]))
  }
  const name = record.target
    .split('.')
    .map(label => Buffer.concat([Buffer.from([label.length]), Buffer.from(label)]))
  return Buffer.concat([
    Buffer.from([0, 0, 0, 0, record.port >> 8, record.port & 0xff]),
    ...name,
    Buffer.from([0]),
  ])
}
