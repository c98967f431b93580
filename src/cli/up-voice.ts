/** What `eldr up` says, to a person or to a program. */
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
  /** From the start of the command. */
  readonly ms: number
}

export interface Voice {
  readonly events: ClusterEvents
  starting(files: ClusterFiles): void
  ready(ready: Ready): void
  view(view: UpView, seconds: number, failure: string | undefined): void
  stopping(signal: string): void
  stopped(): void
}

/** `rate`: of the built-in load. */
interface Said extends UpFlags {
  readonly speed: number
  readonly rate?: number | undefined
}

export function personVoice(flags: Said, screen: Screen, terminal: Terminal): Voice {
  const { dim, bold, accent, warn } = terminal
  const note = (text: string) => screen.log(wrapped(text, terminal.width, 2))
  let lastFailure: string | undefined
  return {
    events: {
      line: (name, line) => flags.verbose && note(dim(`${name}: ${printable(line)}`)),
      ended: (name, how, pauseMs) =>
        note(
          `${warn('!')} ${bold(name)} ended (${printable(how)}); it is started again in ${duration(pauseMs)}. Requests go to the others.`,
        ),
      restarted: (name, pid) =>
        note(
          `${accent('+')} ${bold(name)} runs again (process ${pid}); the gateway takes it back when it answers.`,
        ),
    },
    starting({ model, shape, profile, artifact }) {
      const { speed } = flags
      const time =
        speed === 1
          ? ''
          : `, ${speed} times as fast so that this machine keeps up (times shown are the profile’s)`
      note(
        `${bold(`${topologyOf(flags)} on this machine`)}: ${printable(model)} (${shape}) ${flags.backend === 'tiny' ? 'computed' : 'replayed'}, ${flags.backend === 'tiny' && flags.pace === 'real' ? 'as fast as it can' : `steps timed as ${printable(profile.name)}${time}`}`,
      )
      if (artifact?.fitted) note(dim(`fitted ${printable(artifact.path)} in ${duration(artifact.fitted.ms)}`))
    },
    ready({ url, curl, policy, ms }) {
      note(
        `${accent('ready')} after ${duration(ms)}, policy ${policy}. Point any OpenAI client at ${bold(`${url}/v1`)}, or paste:`,
      )
      screen.log(`\n  ${curl}\n`)
      note(`Watch it, and change what it does, at ${bold(`${url}/dashboard`)}`)
      screen.log('')
      screen.log(
        `Or by hand: change the policy while it runs, and see what each one gains:\n\n  curl -X PUT ${url}/eldr/policy -d '{"policy": "round_robin"}'\n`,
      )
      if (flags.rate !== undefined)
        note(
          dim(
            `Built-in load: ${flags.rate} requests a second ${flags.backend === 'tiny' ? 'of the prompts that its trace was captured of' : 'from the trace'}.`,
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
      if (screen.isLive) screen.log('') // below the ^C that the terminal shows
      note(`${signal}: stopping …`)
    },
    stopped: () => note('stopped; nothing is left running.'),
  }
}

/** An object a line. */
export function jsonVoice(flags: UpFlags, terminal: Terminal): Voice {
  const say = (event: string, data: object) => terminal.write(`${JSON.stringify({ event, ...data })}\n`)
  return {
    events: {
      line: (name, line) => flags.verbose && say('log', { name, line }),
      ended: (name, how, pauseMs) => say('ended', { name, how, pauseMs }),
      restarted: (name, pid) => say('restarted', { name, pid }),
    },
    starting: ({ trace, model, profile, artifact }) =>
      say('starting', {
        topology: topologyOf(flags),
        trace,
        model,
        profile: profile.name,
        speed: flags.speed,
        artifact: artifact?.path ?? null,
      }),
    ready: ready => say('ready', { ...ready, dashboard: `${ready.url}/dashboard` }),
    view: ({ policy, workers, policies }, seconds, failure) =>
      say('view', {
        seconds,
        policy: policy ?? null,
        workers: workers.map(({ seen: { own, ...seen }, work }) => ({
          ...seen,
          rssBytes: own?.rss_bytes ?? null,
          ...shown(work),
        })),
        policies: policies.map(([name, work]) => ({ policy: name, ...shown(work) })),
        ...(failure !== undefined && { failure }),
      }),
    stopping: signal => say('stopping', { signal }),
    stopped: () => say('stopped', {}),
  }
}

function shown(work: DecodeWork) {
  return { seconds: work.seconds, tokens: work.tokens, step: meanStep(work) ?? null }
}
