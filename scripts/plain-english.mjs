// Checks the words that people read: documents, help texts, logs, errors, comments and names. Run by `npm run
// lint`.
//   node scripts/plain-english.mjs [--count] [PATH…]
// A line that needs one of the words (a quotation, a name from outside) goes on the allow list below, with
// its reason.
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync, statSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { relative, resolve } from 'node:path'

const ROOT = fileURLToPath(new URL('..', import.meta.url))

/** What to look for, and what to write instead. `in` limits a rule to files whose path matches. */
const RULES = [
  { find: /\banew\b/i, say: '“again”, “restart” or “refit”' },
  { find: /\bunless told\b/i, say: '“default: …”' },
  { find: /\bmend(s|ed|ing)?\b/i, say: '“fix”' },
  {
    find: /\b(whoever|whomever|somebody|nobody|anybody)\b/i,
    say: 'the actor: the operator, the client, no worker',
  },
  { find: /\bsecond (try|tries)\b/i, say: '“retry”' },
  { find: /\bwell again\b/i, say: '“recovered”' },
  {
    find: /\b(in vain|befall\w*|befell|amid|supposing|wholly|seldom|comers?)\b/i,
    say: 'the plain technical word',
  },
  { find: /\bmade[- ]up\b/i, say: '“synthetic”, “random” or “generated”' },
  // The JSON field of pulses keeps its name: happenings.
  { find: /\b(happening|Happenings?)\b/, say: '“event”' },
  { find: /\b(is|are|was|were) not right\b/i, say: '“invalid”' },
  { find: /\bMOST_[A-Z]/, say: 'MAX_' },
  {
    find: /\b(requests?|tokens?|bytes|times|steps?|decisions?|messages?|lines?|hand-offs?|[kMG]i?B|µs|ms) an? (second|minute|hour|day|worker|request|token|layer|step|call|line)\b/i,
    say: '“per second”, “per worker”',
  },
  { find: /\banswer(s|ed|ing)?\b/i, say: '“response”, “respond”, or what was asked', in: /\.md$/ },
]

/** [path, text of the line]: why the word stays. */
const ALLOWED = [
  ['scripts/plain-english.mjs', ''], // the rules themselves
  ['dashboard/follow.ts', '.happenings'], // a field of the pulse, which keeps its name
]

const SKIPPED =
  /^(data|models|docs\/evidence\/results|test\/golden|bench\/gpu\/results|bench\/gpu\/serving\/results|python\/bench\/results)\/|package-lock\.json$|^LICENSE$|^src\/worker\/replay\/words\.ts$/
const TEXT =
  /\.(ts|tsx|mjs|js|py|md|ya?ml|json|sh|css|html|toml|tpl|wat|txt|service)$|^\.ci\/run$|Containerfile/

const args = process.argv.slice(2)
const paths = args.filter(arg => !arg.startsWith('--')).map(path => relative(ROOT, resolve(path)))
const files = execFileSync('git', ['ls-files', '-co', '--exclude-standard', '--', ...paths], {
  cwd: ROOT,
  encoding: 'utf8',
})
  .split('\n')
  .filter(
    file =>
      TEXT.test(file) && !SKIPPED.test(file) && existsSync(ROOT + file) && statSync(ROOT + file).isFile(),
  )

const isAllowed = (file, line) => ALLOWED.some(([path, text]) => path === file && line.includes(text))
const found = files.flatMap(file =>
  readFileSync(ROOT + file, 'utf8')
    .split('\n')
    .flatMap((line, at) =>
      isAllowed(file, line)
        ? []
        : RULES.filter(rule => rule.find.test(line) && (rule.in === undefined || rule.in.test(file))).map(
            rule => ({
              where: `${file}:${at + 1}`,
              word: rule.find.exec(line)[0],
              say: rule.say,
            }),
          ),
    ),
)

if (args.includes('--count')) console.log(`${found.length} in ${files.length} files`)
else for (const { where, word, say } of found) console.error(`${where}: “${word}”: write ${say}`)
process.exitCode = found.length > 0 ? 1 : 0
