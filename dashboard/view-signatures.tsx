/**
 * Live requests among the calibration requests of the artifact, and whether the fit still matches the
 * traffic.
 */
import type { FitHealth } from '../src/gateway/observe/insight/wire.ts'
import { Empty, Fact, Section } from './parts.tsx'
import { QuantileChart } from './quantile-chart.tsx'
import { Space } from './space.tsx'
import { plane, pulse } from './state.ts'
import { cosine, number, percent } from './words.ts'

export function Signatures() {
  const routing = pulse.value!.routing
  const { health } = pulse.value!
  return (
    <>
      <Section
        title="Signature space"
        aside={
          plane.value ? (
            <p class="quiet">
              {percent(plane.value.explained[0] + plane.value.explained[1])} of the variance lies in this
              plane
            </p>
          ) : undefined
        }
      >
        {plane.value === null ? (
          <Empty>
            The gateway has no artifact. Fit one from a trace with <code>eldr fit</code> and load it under{' '}
            <a href="#control">Control</a>, or start the gateway with <code>--artifact FILE</code>.
          </Empty>
        ) : plane.value === undefined ? (
          <Empty>Computing the plane…</Empty>
        ) : (
          <Space plane={plane.value} />
        )}
      </Section>
      <Section
        title="Fit quality"
        aside={<p class="quiet">last {Math.max(1, Math.round(health.seconds / 60))} min</p>}
      >
        {health.decisions === 0 ? (
          <Empty>No decisions yet: data appear with the first request.</Empty>
        ) : (
          <Health health={health} isCompared={routing.artifact !== undefined} policy={routing.policy} />
        )}
      </Section>
    </>
  )
}

function Health({ health, isCompared, policy }: { health: FitHealth; isCompared: boolean; policy: string }) {
  const { decisions, withoutSignature, rejects, coverage, covered, compared, quantiles } = health
  const refused = Object.entries(rejects)
  const median = quantiles.find(({ q }) => q === 0.5)
  return (
    <>
      <p class={`verdict ${verdictOf(health).level}`} role="status">
        {verdictOf(health).words}
      </p>
      <dl class="facts">
        <Fact
          name="Coverage"
          value={percent(coverage, 1)}
          note={`mean share of the prompt, ${number(covered)} hand-offs`}
          fact="coverage"
        />
        <Fact
          name="Without signature"
          value={percent(decisions === 0 ? undefined : withoutSignature / decisions, 1)}
          note={`${number(withoutSignature)} of ${number(decisions)} decisions`}
          fact="without"
        />
        <Fact
          name="Median best cosine"
          value={cosine(median?.live)}
          note={median?.calibration === undefined ? undefined : `calibration ${cosine(median.calibration)}`}
          fact="median"
        />
      </dl>
      {refused.length > 0 && (
        <p class="notice">
          Rejected counts: {refused.map(([why, count]) => `${why} (${number(count)})`).join(', ')}.
          docs/guides/gateway.md explains each reason.
        </p>
      )}
      {compared === 0 ? (
        <Empty>
          {isCompared
            ? `No live request has been compared with the centroids yet. The policies union, eldr and band do that; the present one is ${policy}.`
            : 'No comparison without an artifact.'}
        </Empty>
      ) : (
        <div class="pair">
          <QuantileChart quantiles={quantiles} />
          <div class="card">
            <h3>Best cosine to a centroid</h3>
            <p class="quiet">{number(compared)} live requests and the calibration requests of the artifact</p>
            <table>
              <thead>
                <tr>
                  <th>share below</th>
                  <th class="number">calibration</th>
                  <th class="number">live</th>
                </tr>
              </thead>
              <tbody>
                {quantiles
                  .filter(({ q }) => [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99].includes(q))
                  .map(({ q, calibration, live }) => (
                    <tr key={q}>
                      <th>{percent(q)}</th>
                      <td class="number">{cosine(calibration)}</td>
                      <td class="number">{cosine(live)}</td>
                    </tr>
                  ))}
              </tbody>
            </table>
          </div>
        </div>
      )}
    </>
  )
}

const MIN_COMPARED = 50
/** A live median this far below the calibration's lower quartile means different traffic. */
const TOLERANCE = 0.02

export function verdictOf({ decisions, withoutSignature, compared, quantiles }: FitHealth): {
  readonly level: 'well' | 'ill' | 'open'
  readonly words: string
} {
  const without = withoutSignature / decisions
  if (without > 0.2)
    return {
      level: 'ill',
      words: `${percent(without)} of the requests have no usable counts and are routed by load. Check that the prefill engine captures experts (docs/guides/vllm.md).`,
    }
  if (compared < MIN_COMPARED)
    return {
      level: 'open',
      words: `Only ${number(compared)} requests have been compared with centroids: too few to judge the fit.`,
    }
  const quantile = (q: number) => quantiles.find(one => one.q === q)
  const [live, lower] = [quantile(0.5)?.live, quantile(0.25)?.calibration]
  if (live === undefined || lower === undefined)
    return {
      level: 'open',
      words: 'The artifact has no cosines of its calibration requests, so there is nothing to compare with.',
    }
  if (live < lower - TOLERANCE)
    return {
      level: 'ill',
      words: `Traffic has drifted away from the fit: half of the live requests are below ${cosine(live)}, but only a quarter of the calibration requests are below ${cosine(lower)}. Calibrate again.`,
    }
  return {
    level: 'well',
    words: 'Live requests are about as close to the centroids as the calibration requests: the fit holds.',
  }
}
