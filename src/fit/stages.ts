/** Times the stages of a long job and reports progress. Stages run one after the other. */
export interface Stages {
  run<T>(name: string, work: () => T | Promise<T>): Promise<T>
  progress(what: string, done: number, total: number): void
  readonly times: readonly { readonly name: string; readonly ms: number }[]
}

export interface StageWatcher {
  started?(name: string): void
  progress?(what: string, done: number, total: number): void
  ended?(name: string, ms: number): void
}

export function createStages(watcher: StageWatcher = {}): Stages {
  const times: { name: string; ms: number }[] = []
  return {
    times,
    async run(name, work) {
      watcher.started?.(name)
      const from = performance.now()
      const result = await work()
      const ms = performance.now() - from
      times.push({ name, ms })
      watcher.ended?.(name, ms)
      return result
    },
    progress: (what, done, total) => watcher.progress?.(what, done, total),
  }
}
