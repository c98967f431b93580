import type { Reporter, TestModule } from 'vitest/node'

/** Ends CI's output with one line that is easy to parse: N passed, N failed, N skipped. */
export default class PlainSummary implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const states = modules.flatMap(module =>
      Array.from(module.children.allTests(), test => test.result().state),
    )
    const count = (state: string) => states.filter(other => other === state).length
    const broken = modules.filter(module => module.errors().length > 0).length
    console.log(
      `Tests: ${count('passed')} passed, ${count('failed') + broken} failed, ${count('skipped')} skipped`,
    )
  }
}
