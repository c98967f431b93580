import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { EldrError } from '../../../errors.ts'
import { loadSettings } from '../load.ts'
import { asYaml } from '../show.ts'

const folder = mkdtempSync(join(tmpdir(), 'eldr-ranks-'))
afterAll(() => rmSync(folder, { recursive: true }))

function file(text: string): string {
  const path = join(folder, 'eldr.yaml')
  writeFileSync(path, text)
  return path
}

async function problems(asked: Parameters<typeof loadSettings>[0]): Promise<string[]> {
  try {
    await loadSettings(asked)
  } catch (error) {
    if (error instanceof EldrError && error.code === 'ELDR_CONFIG_INVALID')
      return [...(error.detail.problems ?? [])].map(line => line.replace(/^.*eldr\.yaml:/, ''))
    throw error
  }
  return []
}

const flags = (values: Record<string, string | string[]>) => new Map(Object.entries(values))
const RANK = 'a data-parallel rank after @ is a whole number from 0 to 1023, such as http://10.0.0.7:8000@2'
const USER =
  'expected no user or password in the URL: if workers need a key, set workers.apiKey or ELDR_WORKER_API_KEY'

describe('ranks of a server', () => {
  it('become separate workers in every notation', async () => {
    const text =
      'workers: {decode: [{url: http://a:1, ranks: 2}, {url: http://b:1, dpRank: 3}, "http://c@0", {url: http://d:1, id: d, ranks: 2}]}'
    const { workers } = (await loadSettings({ file: file(text) })).settings
    expect(workers.decode).toEqual([
      { url: 'http://a:1', id: 'a:1@0', dpRank: 0, cluster: 0 },
      { url: 'http://a:1', id: 'a:1@1', dpRank: 1, cluster: 1 },
      { url: 'http://b:1', id: 'b:1@3', dpRank: 3, cluster: 2 },
      { url: 'http://c', id: 'c:80@0', dpRank: 0, cluster: 3 },
      { url: 'http://d:1', id: 'd@0', dpRank: 0, cluster: 4 },
      { url: 'http://d:1', id: 'd@1', dpRank: 1, cluster: 5 },
    ])
  })

  it('get their own ids and consecutive clusters', async () => {
    const text =
      'workers: {decode: [{url: http://a:1, ranks: 2, cluster: 1}, {url: http://b:1, dpRank: 3, id: x, cluster: 0}]}'
    const { decode } = (await loadSettings({ file: file(text) })).settings.workers
    expect(decode.map(({ id, cluster }) => [id, cluster])).toEqual([
      ['a:1@0', 1],
      ['a:1@1', 2],
      ['x', 0],
    ])
  })

  it('can be set by flags: a rank after the URL, a size for all, a size per role', async () => {
    const given = {
      '--prefill': ['http://p:1', 'q=http://q:1@2'],
      '--decode': ['http://d:1'],
      '--intra-node-data-parallel-size': '2',
    }
    const { workers } = (await loadSettings({ flags: flags(given) })).settings
    expect(workers.prefill.map(({ id, dpRank }) => [id, dpRank])).toEqual([
      ['p:1@0', 0],
      ['p:1@1', 1],
      ['q', 2],
    ])
    expect(workers.decode.map(({ id, dpRank }) => [id, dpRank])).toEqual([
      ['d:1@0', 0],
      ['d:1@1', 1],
    ])
    const byRole = (await loadSettings({ flags: flags({ ...given, '--prefill-data-parallel-size': '1' }) }))
      .settings.workers
    expect(byRole.prefill.map(({ id }) => id)).toEqual(['p:1', 'q'])
    expect(byRole.decode.map(({ id }) => id)).toEqual(['d:1@0', 'd:1@1'])
    const byEnvironment = await loadSettings({
      env: { ELDR_DECODE: 'http://d:1,http://e:1@4', ELDR_DECODE_DATA_PARALLEL_SIZE: '2' },
    })
    expect(byEnvironment.settings.workers.decode.map(({ id }) => id)).toEqual(['d:1@0', 'd:1@1', 'e:1@4'])
  })

  it('are not used if the size is 1', async () => {
    const { workers } = (
      await loadSettings({
        flags: flags({ '--decode': ['http://d:1'], '--intra-node-data-parallel-size': '1' }),
      })
    ).settings
    expect(workers.decode).toEqual([{ url: 'http://d:1', id: 'd:1', cluster: 0 }])
  })

  it('survive printing and loading the settings', async () => {
    const text =
      'workers: {ranks: 2, prefill: [{url: http://p:1, ranks: 1}], decode: [http://a:1, http://b:1@7, {url: http://c:1, ranks: 3}]}'
    const first = await loadSettings({ file: file(text) })
    expect(first.settings.workers.prefill).toEqual([{ url: 'http://p:1', id: 'p:1', ranks: 1 }])
    const again = await loadSettings({ file: file(asYaml(first)) })
    expect(again.settings).toEqual(first.settings)
  })

  it.each([
    ['["http://a:1@-1"]', `1:20: workers.decode[0]: ${USER}; ${RANK}`],
    ['["http://a:1@1.5"]', `1:20: workers.decode[0]: ${USER}; ${RANK}`],
    ['["http://a:1@x"]', `1:20: workers.decode[0]: ${USER}; ${RANK}`],
    ['["http://a:1@1000000000"]', `1:20: workers.decode[0]: rank too large: ${RANK}`],
    ['["http://a:1@1024"]', `1:20: workers.decode[0]: rank too large: ${RANK}`],
    [
      '["http://a:1@"]',
      `1:20: workers.decode[0]: expected an http or https URL such as http://10.0.0.7:8000; ${RANK}`,
    ],
    ['["http://a:1@1@2"]', `1:20: workers.decode[0]: ${USER}; ${RANK}`],
    ['["http://a:1@007"]', `1:20: workers.decode[0]: ${USER}; ${RANK}`],
    ['["http://user@host"]', `1:20: workers.decode[0]: ${USER}; ${RANK}`],
    ['["http://me:sesame@host:1"]', `1:20: workers.decode[0]: ${USER}`],
    [
      '["http://me:sesame@2"]',
      `1:20: workers.decode[0]: expected an http or https URL such as http://10.0.0.7:8000; ${RANK}`,
    ],
    [
      '[{url: http://a:1, dpRank: -1}]',
      '1:46: workers.decode[0].dpRank: expected a whole number from 0 to 1023, found -1',
    ],
    [
      '[{url: http://a:1, dpRank: 1.5}]',
      '1:46: workers.decode[0].dpRank: expected a whole number from 0 to 1023, found 1.5',
    ],
    [
      '[{url: http://a:1, dpRank: x}]',
      '1:46: workers.decode[0].dpRank: expected a whole number from 0 to 1023, found "x"',
    ],
    [
      '[{url: http://a:1, dpRank: 1000000000}]',
      '1:46: workers.decode[0].dpRank: expected a whole number from 0 to 1023, found 1000000000',
    ],
    [
      '[{url: http://a:1, ranks: 0}]',
      '1:45: workers.decode[0].ranks: expected a whole number from 1 to 1024, found 0',
    ],
    [
      '[{url: http://a:1, ranks: 2, dpRank: 1}]',
      '1:20: workers.decode[0] has dpRank and ranks: set only one of them',
    ],
    [
      '[{url: "http://a:1@1", dpRank: 1}]',
      '1:20: workers.decode[0] has a rank in its url and dpRank: set only one of them',
    ],
    [
      '[{url: "http://a:1@1", ranks: 2}]',
      '1:20: workers.decode[0] has a rank in its url and ranks: set only one of them',
    ],
    [
      '["http://a:1@1", {url: http://a:1/, dpRank: 1}]',
      '1:36: two workers with the url http://a:1@1: workers.decode[0] and workers.decode[1]',
    ],
    [
      '[{url: http://a:1, ranks: 4}, {url: http://a:1, ranks: 3}]',
      '1:49: two workers with the url http://a:1@0: workers.decode[0] and workers.decode[1]',
    ],
    [
      '[http://a:1, "http://a:1@1"]',
      '1:32: http://a:1 both with and without a rank: workers.decode[0] and workers.decode[1]; without a rank it means the whole server',
    ],
    [
      '[{url: http://a:1, ranks: 2}, {url: http://b:1, id: "a:1@1"}]',
      '1:49: two workers with the id a:1@1: workers.decode[0] and workers.decode[1]',
    ],
    [
      '[{url: http://a:1, ranks: 2, cluster: 0}, {url: http://b:1, cluster: 1}]',
      '1:61: cluster 1 is used twice: workers.decode[0] and workers.decode[1]',
    ],
    [
      '[{url: http://a:1, ranks: 2, cluster: 65534}]',
      '1:20: workers.decode[0] needs clusters up to 65535: the limit is 65534',
    ],
  ])('are reported if invalid: %s', async (workers, expected) => {
    expect(await problems({ file: file(`workers: {decode: ${workers}}`) })).toEqual([expected])
  })

  it.each(['0', '-1', '1.5', 'x', '1000000000'])('cannot have the size %s', async size => {
    expect(await problems({ flags: flags({ '--intra-node-data-parallel-size': size }) })).toEqual([
      `--intra-node-data-parallel-size: workers.ranks: expected a whole number from 1 to 1024, found "${size}"`,
    ])
  })
})
