import { Writable } from 'node:stream'
import { afterEach, describe, expect, it, vi } from 'vitest'
import type { LogLevel } from '../../config/settings.ts'
import { LogLevelControl } from './log-level.ts'
import { createLog } from './log.ts'

afterEach(() => void vi.useRealTimers())

function started(logLevel: LogLevel) {
  const lines: string[] = []
  const out = new Writable({
    write: (chunk: Buffer, _, done) => void (lines.push(chunk.toString()), done()),
  }) as unknown as typeof process.stderr
  const log = createLog({ logLevel, logFormat: 'json' }, out)
  const said = () =>
    lines.splice(0).map(line => (JSON.parse(line) as { msg: string; to?: string }).to ?? JSON.parse(line).msg)
  return { log, control: new LogLevelControl(log), said }
}

describe('the level of the log', () => {
  it('changes what is said from then on, and is said itself, once', () => {
    const { log, control, said } = started('info')
    log.debug('before')
    expect(control.set('debug')).toEqual({ level: 'debug', configured: 'info' })
    log.debug('after')
    expect(said()).toEqual(['debug', 'after'])
    control.set('silent')
    log.error('never')
    expect(said()).toEqual(['silent'])
    control.set('info')
    control.set('info')
    expect(said()).toEqual(['info'])
    expect(control.view()).toEqual({ level: 'info', configured: 'info' })
  })

  it('goes back by itself when it is for a while', () => {
    vi.useFakeTimers()
    const { log, control } = started('warn')
    expect(control.set('debug', 10_000)).toEqual({ level: 'debug', configured: 'warn', leftMs: 10_000 })
    vi.advanceTimersByTime(4_000)
    expect(control.view()).toEqual({ level: 'debug', configured: 'warn', leftMs: 6_000 })
    vi.advanceTimersByTime(6_000)
    expect([log.level, control.view()]).toEqual(['warn', { level: 'warn', configured: 'warn' }])
  })

  it('stays where a later word put it', () => {
    vi.useFakeTimers()
    const { log, control } = started('info')
    control.set('debug', 1_000)
    control.set('error')
    vi.advanceTimersByTime(5_000)
    expect(log.level).toBe('error')
    control.set('debug', 1_000)
    control.set('debug', 9_000)
    vi.advanceTimersByTime(5_000)
    expect(log.level).toBe('debug')
    control.close()
    vi.advanceTimersByTime(9_000)
    expect(log.level).toBe('debug')
  })

  it('is switched between debug and what it was', () => {
    const { control } = started('warn')
    expect([control.toggleDebug().level, control.toggleDebug().level, control.toggleDebug().level]).toEqual([
      'debug',
      'warn',
      'debug',
    ])
    const talkative = started('debug')
    expect([talkative.control.toggleDebug().level, talkative.control.toggleDebug().level]).toEqual([
      'info',
      'debug',
    ])
  })
})
