/** Controls to drain workers and to load an artifact. */
import { ApiError, change } from './api.ts'
import type { Part } from './control-policy.tsx'
import { Fact, Section, State, WorkerName } from './parts.tsx'
import { pulse } from './state.ts'
import { number } from './words.ts'

export function Workers({ off, run }: Part) {
  return (
    <Section title="Workers">
      <div class="card scroll" tabIndex={0} role="region" aria-label="Workers, table">
        <table>
          <thead>
            <tr>
              <th>worker</th>
              <th class="wide">role</th>
              <th>state</th>
              <th class="number">in flight</th>
              <th>
                <span class="unseen">change</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {pulse.value!.workers.map(({ id, role, dpRank, state, inflight }) => (
              <tr key={id} data-worker={id}>
                <th>
                  <WorkerName id={id} />
                </th>
                <td class="wide">{dpRank === undefined ? role : `${role}, rank ${dpRank}`}</td>
                <td>
                  <State state={state} />
                </td>
                <td class="number">{inflight}</td>
                <td class="number">
                  {state === 'draining' ? (
                    <button
                      type="button"
                      disabled={off}
                      onClick={() =>
                        run(`${id} accepts requests again.`, () =>
                          change('POST', `workers/${encodeURIComponent(id)}/undrain`),
                        )
                      }
                    >
                      Undrain<span class="unseen"> {id}</span>
                    </button>
                  ) : (
                    <button
                      type="button"
                      disabled={off || state === 'leaving'}
                      onClick={() =>
                        run(`${id} is draining.`, () =>
                          change('POST', `workers/${encodeURIComponent(id)}/drain`),
                        )
                      }
                    >
                      Drain<span class="unseen"> {id}</span>
                    </button>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Section>
  )
}

export function ArtifactPart({ off, run }: Part) {
  const { artifact, note, decodeWorkers } = pulse.value!.routing
  function load(event: SubmitEvent): void {
    event.preventDefault()
    const form = new FormData(event.currentTarget as HTMLFormElement)
    const [path, file] = [String(form.get('path') ?? '').trim(), form.get('file')]
    const isUpload = file instanceof File && file.size > 0
    void run('Artifact loaded.', () => {
      if (isUpload) return change('POST', 'artifact', file)
      if (path === '') throw new ApiError(400, 'Enter a path on the gateway’s machine, or choose a file.')
      return change('POST', 'artifact', { path })
    })
  }
  return (
    <Section title="Artifact">
      <form class="card" onSubmit={load}>
        {artifact === undefined ? (
          <p class="quiet">No artifact loaded.</p>
        ) : (
          <dl class="facts">
            <Fact
              name="File"
              value={<code>{artifact.file}</code>}
              note={`sha256 ${artifact.sha256.slice(0, 12)}…`}
            />
            <Fact name="Model" value={artifact.model} />
            <Fact
              name="Clusters"
              value={number(artifact.clusters)}
              note={`${number(decodeWorkers)} decode workers`}
            />
          </dl>
        )}
        {note !== undefined && <p class="warn">{note}.</p>}
        <fieldset disabled={off}>
          <legend class="unseen">Load an artifact</legend>
          <div class="fields">
            <label>
              Path on the gateway’s machine
              <input name="path" type="text" placeholder={artifact?.file ?? 'artifact.safetensors'} />
            </label>
            <label>
              or upload a file
              <input name="file" type="file" accept=".safetensors" />
            </label>
            <button type="submit" class="main">
              Load
            </button>
            <button
              type="button"
              disabled={off || artifact === undefined}
              onClick={() => run('Clusters refitted.', () => change('POST', 'refit'))}
            >
              Refit clusters
            </button>
          </div>
        </fieldset>
      </form>
    </Section>
  )
}
