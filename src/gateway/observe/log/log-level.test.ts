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
  const logged = () =>
    lines.splice(0).map(line => (JSON.parse(line) as { msg: string; to?: string }).to ?? JSON.parse(line).msg)
  return { log, control: new LogLevelControl(log), logged }
}

describe('LogLevelControl', () => {
  it('changes the level and logs the change once', () => {
    const { log, control, logged } = started('info')
    log.debug('before')
    expect(control.set('debug')).toEqual({ level: 'debug', configured: 'info' })
    log.debug('after')
    expect(logged()).toEqual(['debug', 'after'])
    control.set('silent')
    log.error('never')
    expect(logged()).toEqual(['silent'])
    control.set('info')
    control.set('info')
    expect(logged()).toEqual(['info'])
    expect(control.view()).toEqual({ level: 'info', configured: 'info' })
  })

  it('restores the configured level after the given time', () => {
    vi.useFakeTimers()
    const { log, control } = started('warn')
    expect(control.set('debug', 10_000)).toEqual({ level: 'debug', configured: 'warn', leftMs: 10_000 })
    vi.advanceTimersByTime(4_000)
    expect(control.view()).toEqual({ level: 'debug', configured: 'warn', leftMs: 6_000 })
    vi.advanceTimersByTime(6_000)
    expect([log.level, control.view()]).toEqual(['warn', { level: 'warn', configured: 'warn' }])
  })

  it('keeps a later level when an earlier timer would have ended', () => {
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

  it('toggles between debug and the configured level', () => {
    const { control } = started('warn')
    expect([control.toggleDebug().level, control.toggleDebug().level, control.toggleDebug().level]).toEqual([
      'debug',
      'warn',
      'debug',
    ])
    const atDebug = started('debug')
    expect([atDebug.control.toggleDebug().level, atDebug.control.toggleDebug().level]).toEqual([
      'info',
      'debug',
    ])
  })
})
