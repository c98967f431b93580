/** Finds and reads all Markdown pages of the repository. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { readPage, type Page } from './markdown.ts'

export const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** Searched recursively. */
const FOLDERS = ['docs', 'deploy', 'data', 'models', 'bench', 'python']
const SKIPPED_FOLDERS = new Set(['node_modules', 'dist', '.venv', 'results', '.git', 'eldr-out'])

/** Paths relative to the root. */
export function allPages(): string[] {
  const top = readdirSync(ROOT).filter(name => name.endsWith('.md'))
  return [...top, ...FOLDERS.filter(folder => existsSync(join(ROOT, folder))).flatMap(pagesUnder)].sort()
}

function pagesUnder(folder: string): string[] {
  return readdirSync(join(ROOT, folder), { withFileTypes: true }).flatMap(entry => {
    const path = `${folder}/${entry.name}`
    if (entry.isDirectory()) return SKIPPED_FOLDERS.has(entry.name) ? [] : pagesUnder(path)
    return entry.name.endsWith('.md') ? [path] : []
  })
}

export function pageAt(path: string): Page {
  return readPage(readFileSync(join(ROOT, path), 'utf8'))
}
