import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { EldrError } from '../../../errors.ts'
import { askToReplace, openControlSocket } from './control-socket.ts'
import type { Command } from './messages.ts'

const usual = process.env['TMPDIR']
let folder: string
let own: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'eldr-test-'))
  process.env['TMPDIR'] = folder
  own = join(folder, `eldr-${process.getuid?.() ?? 0}`)
})
afterEach(() => {
  if (usual === undefined) delete process.env['TMPDIR']
  else process.env['TMPDIR'] = usual
  rmSync(folder, { recursive: true, force: true })
})

const COMMAND: Command = {
  node: 'node',
  nodeArgs: [],
  program: 'eldr',
  args: ['serve'],
  folder: '/',
  env: {},
}

describe('the control socket', () => {
  it('carries a command and its result, in a folder of this user', async () => {
    const asked: Command[] = []
    const control = await openControlSocket('127.0.0.1:8000', async command => {
      asked.push(command)
      return { pid: 7, version: '1' }
    })
    expect(await askToReplace('127.0.0.1:8000', COMMAND)).toEqual({ pid: 7, version: '1' })
    expect(asked).toEqual([COMMAND])
    expect(statSync(own).mode & 0o777).toBe(0o700)
    control.rename('127.0.0.1:8001')
    expect(await askToReplace('127.0.0.1:8001', COMMAND)).toMatchObject({ pid: 7 })
    await expect(askToReplace('127.0.0.1:8000', COMMAND)).rejects.toMatchObject({ code: 'ELDR_REPLACE_NONE' })
    control.close()
    expect(readdirSync(own)).toEqual([])
  })

  it('carries the reason of a failure with its code', async () => {
    const control = await openControlSocket('[::1]:80', () =>
      Promise.reject(new EldrError('ELDR_REPLACE_FAILED', { found: 'a fault' })),
    )
    await expect(askToReplace('[::1]:80', COMMAND)).rejects.toMatchObject({
      code: 'ELDR_REPLACE_FAILED',
      detail: { found: 'a fault' },
    })
    control.close()
  })

  it('is closed to other users, also if its folder was open, and is not put behind a link', async () => {
    mkdirSync(own)
    chmodSync(own, 0o777)
    const control = await openControlSocket('a:1', async () => ({ pid: 1, version: '1' }))
    expect(statSync(own).mode & 0o777).toBe(0o700)
    control.close()
    rmSync(own, { recursive: true })
    symlinkSync('/tmp', own)
    await expect(openControlSocket('a:1', async () => ({ pid: 1, version: '1' }))).rejects.toMatchObject({
      code: 'ELDR_FILE_UNWRITABLE',
    })
  })
})
