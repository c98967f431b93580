/** Output of `eldr up`: text for people or JSON for programs. */
import { duration } from '../report/numbers.ts'
import { printable, type Terminal, wrapped } from '../report/terminal.ts'
import type { ClusterEvents } from '../up/cluster-events.ts'
import { type DecodeWork, meanStep } from '../up/decode-work.ts'
import type { Screen } from '../up/screen.ts'
import { upLine, upTable, type UpView } from '../up/up-table.ts'
import type { ClusterFiles } from './up-cluster.ts'
import { topologyOf } from './up-cluster.ts'
import type { UpFlags } from './up.ts'

export interface Ready {
  readonly url: string
  readonly model: string
  readonly policy: string
  readonly curl: string
  readonly pids: Readonly<Record<string, number | undefined>>
  /** Since the start of the command. */
  readonly ms: number
}

export interface UpOutput {
  readonly events: ClusterEvents
  starting(files: ClusterFiles): void
  ready(ready: Ready): void
  view(view: UpView, seconds: number, failure: string | undefined): void
  stopping(signal: string): void
  stopped(): void
}

/** `rate`: rate of the built-in load. */
interface TextFlags extends UpFlags {
  readonly speed: number
  readonly rate?: number | undefined
}

export function textOutput(flags: TextFlags, screen: Screen, terminal: Terminal): UpOutput {
  const { dim, bold, accent, warn } = terminal
  const note = (text: string) => screen.log(wrapped(text, terminal.width, 2))
  let lastFailure: string | undefined
  return {
    events: {
      line: (name, line) => flags.verbose && note(dim(`${name}: ${printable(line)}`)),
      ended: (name, how, pauseMs) =>
        note(
          `${warn('!')} ${bold(name)} exited (${printable(how)}), restarting in ${duration(pauseMs)}. Requests go to the other workers.`,
        ),
      restarted: (name, pid) =>
        note(
          `${accent('+')} ${bold(name)} restarted (process ${pid}); the gateway uses it again once it responds.`,
        ),
    },
    starting({ model, shape, profile, artifact }) {
      const { speed } = flags
      const time =
        speed === 1
          ? ''
          : ` at ${speed}× speed, so that this machine keeps up (times shown are profile times)`
      note(
        `${bold(`${topologyOf(flags)} on this machine`)}: ${printable(model)} (${shape}) ${flags.backend === 'tiny' ? 'computed' : 'replayed'}, ${flags.backend === 'tiny' && flags.pace === 'real' ? 'at real speed' : `step times from profile ${printable(profile.name)}${time}`}`,
      )
      if (artifact?.fitted) note(dim(`fitted ${printable(artifact.path)} in ${duration(artifact.fitted.ms)}`))
    },
    ready({ url, curl, policy, ms }) {
      note(
        `${accent('ready')} after ${duration(ms)}, policy ${policy}. Point any OpenAI client at ${bold(`${url}/v1`)}, or paste:`,
      )
      screen.log(`\n  ${curl}\n`)
      note(`Dashboard: ${bold(`${url}/dashboard`)}`)
      screen.log('')
      screen.log(
        `To change the policy while it runs, use the dashboard or:\n\n  curl -X PUT ${url}/eldr/policy -d '{"policy": "round_robin"}'\n`,
      )
      if (flags.rate !== undefined)
        note(
          dim(
            `Built-in load: ${flags.rate} requests per second from ${flags.backend === 'tiny' ? 'the prompts of the trace' : 'the trace'}.`,
          ),
        )
      note(dim('Ctrl-C stops everything.'))
      screen.log('')
    },
    view(view, seconds, failure) {
      if (failure !== lastFailure && failure !== undefined)
        note(`${warn('!')} a request of the built-in load failed: ${printable(failure)}`)
      lastFailure = failure
      if (!flags.table) return
      if (screen.isLive) screen.draw(upTable(view, terminal))
      else screen.log(upLine(view, seconds))
    },
    stopping(signal) {
      screen.leave()
      if (screen.isLive) screen.log('') // keep the ^C that the terminal echoes
      note(`${signal}: stopping…`)
    },
    stopped: () => note('stopped; all processes have ended.'),
  }
}

/** One JSON object per line. */
export function jsonOutput(flags: UpFlags, terminal: Terminal): UpOutput {
  const emit = (event: string, data: object) => terminal.write(`${JSON.stringify({ event, ...data })}\n`)
  return {
    events: {
      line: (name, line) => flags.verbose && emit('log', { name, line }),
      ended: (name, how, pauseMs) => emit('ended', { name, how, pauseMs }),
      restarted: (name, pid) => emit('restarted', { name, pid }),
    },
    starting: ({ trace, model, profile, artifact }) =>
      emit('starting', {
        topology: topologyOf(flags),
        trace,
        model,
        profile: profile.name,
        speed: flags.speed,
        artifact: artifact?.path ?? null,
      }),
    ready: ready => emit('ready', { ...ready, dashboard: `${ready.url}/dashboard` }),
    view: ({ policy, workers, policies }, seconds, failure) =>
      emit('view', {
        seconds,
        policy: policy ?? null,
        workers: workers.map(({ seen: { own, ...seen }, work }) => ({
          ...seen,
          rssBytes: own?.rss_bytes ?? null,
          ...shown(work),
        })),
        policies: policies.map(([name, work]) => ({ policy: name, ...shown(work) })),
        failure,
      }),
    stopping: signal => emit('stopping', { signal }),
    stopped: () => emit('stopped', {}),
  }
}

function shown(work: DecodeWork) {
  return { seconds: work.seconds, tokens: work.tokens, step: meanStep(work) ?? null }
}
