/** The documents of the repository: every page that a person is sent to. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { readPage, type Page } from './markdown.ts'

export const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** Folders whose pages are read, with what lies below them. */
const FOLDERS = ['docs', 'deploy', 'data', 'models', 'bench', 'python']
const LEFT_OUT = new Set(['node_modules', 'dist', '.venv', 'results', '.git', 'eldr-out'])

/** Paths from the root. */
export function allPages(): string[] {
  const top = readdirSync(ROOT).filter(name => name.endsWith('.md'))
  return [...top, ...FOLDERS.filter(folder => existsSync(join(ROOT, folder))).flatMap(pagesUnder)].sort()
}

function pagesUnder(folder: string): string[] {
  return readdirSync(join(ROOT, folder), { withFileTypes: true }).flatMap(entry => {
    const path = `${folder}/${entry.name}`
    if (entry.isDirectory()) return LEFT_OUT.has(entry.name) ? [] : pagesUnder(path)
    return entry.name.endsWith('.md') ? [path] : []
  })
}

export function pageAt(path: string): Page {
  return readPage(readFileSync(join(ROOT, path), 'utf8'))
}
