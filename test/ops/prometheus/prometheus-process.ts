/** A real Prometheus that scrapes every second, and what its HTTP API says. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { stringify } from 'yaml'
import { tool } from '../tools.ts'
import type { RuleFile } from './expressions.ts'

export interface ScrapeTarget {
  readonly job: string
  readonly url: string
  readonly labels?: Readonly<Record<string, string>>
}

export interface Sample {
  readonly metric: Readonly<Record<string, string>>
  readonly value: number
}

export interface FiringAlert {
  readonly labels: Readonly<Record<string, string>>
  readonly annotations: Readonly<Record<string, string>>
  readonly state: string
}

export class Prometheus {
  readonly #child: ChildProcess
  readonly #url: string

  private constructor(child: ChildProcess, url: string) {
    this.#child = child
    this.#url = url
  }

  static async start(folder: string, targets: readonly ScrapeTarget[], rules: RuleFile): Promise<Prometheus> {
    writeFileSync(join(folder, 'rules.yml'), stringify(rules))
    writeFileSync(join(folder, 'prometheus.yml'), stringify(configOf(targets)))
    const flags = [
      '--config.file=prometheus.yml',
      '--storage.tsdb.path=data',
      '--web.listen-address=127.0.0.1:0',
    ]
    const child = spawn(tool('prometheus', 'prometheus'), flags, {
      cwd: folder,
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    const ended = once(child, 'exit')
    let said = ''
    const url = await new Promise<string>((resolve, reject) => {
      let address: string | undefined
      createInterface({ input: child.stderr! }).on('line', line => {
        said += `${line}\n`
        address ??= /Listening on.*address="?([^\s"]+)/.exec(line)?.[1]
        if (line.includes('Server is ready')) resolve(`http://${address}`)
      })
      void ended.then(([code]) => reject(new Error(`prometheus ended with ${String(code)}: ${said}`)))
    })
    return new Prometheus(child, url)
  }

  /** Rejects with what Prometheus says of an expression that it does not take. */
  async query(expr: string): Promise<Sample[]> {
    const { result, resultType } = await this.#get<{
      resultType: string
      result: { metric: Sample['metric']; value: [number, string] }[]
    }>('query', { query: expr })
    if (resultType !== 'vector') throw new Error(`${expr}: a ${resultType}`)
    return result.map(({ metric, value }) => ({ metric, value: Number(value[1]) }))
  }

  /** Of an expression with one value; NaN when there is none. */
  async number(expr: string): Promise<number> {
    return (await this.query(expr))[0]?.value ?? NaN
  }

  labelValues(label: string, series: string): Promise<string[]> {
    return this.#get(`label/${label}/values`, { 'match[]': series })
  }

  async alerts(): Promise<FiringAlert[]> {
    return (await this.#get<{ alerts: FiringAlert[] }>('alerts')).alerts.filter(
      ({ state }) => state === 'firing',
    )
  }

  async ruleHealth(): Promise<
    { readonly name: string; readonly health: string; readonly lastError?: string }[]
  > {
    const { groups } = await this.#get<{
      groups: { rules: { name: string; health: string; lastError?: string }[] }[]
    }>('rules')
    return groups.flatMap(({ rules }) => rules)
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    const ended = once(this.#child, 'exit')
    this.#child.kill('SIGTERM')
    await ended
  }

  async #get<T>(path: string, parameters: Readonly<Record<string, string>> = {}): Promise<T> {
    const response = await fetch(`${this.#url}/api/v1/${path}?${new URLSearchParams(parameters).toString()}`)
    const answer = (await response.json()) as { status: string; data: T; error?: string }
    if (answer.status !== 'success') throw new Error(`${parameters['query'] ?? path}: ${answer.error}`)
    return answer.data
  }
}

function configOf(targets: readonly ScrapeTarget[]): object {
  const jobs = [...new Set(targets.map(({ job }) => job))]
  return {
    global: { scrape_interval: '1s', scrape_timeout: '1s', evaluation_interval: '1s' },
    rule_files: ['rules.yml'],
    scrape_configs: jobs.map(name => ({
      job_name: name,
      static_configs: targets
        .filter(({ job }) => job === name)
        .map(({ url, labels = {} }) => ({ targets: [new URL(url).host], labels })),
    })),
  }
}
