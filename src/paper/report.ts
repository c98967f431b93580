/** Assembles the exhibits into a report with traces, profiles and seeds. */
import type { Exhibit, ExhibitReport } from '../report/exhibit.ts'
import { many, whole } from '../report/numbers.ts'
import { VERSION } from '../version.ts'
import type { Context } from './context.ts'
import { TOPOLOGY } from './loads.ts'
import { rounded } from './rounded.ts'
import { listed } from './words.ts'

export interface Exhibits {
  readonly motivation: readonly Exhibit[]
  readonly signatures: readonly Exhibit[]
  readonly main: readonly Exhibit[]
  readonly validation: readonly Exhibit[]
  readonly scale: readonly Exhibit[]
  readonly beyond: readonly Exhibit[]
}

/** One exhibit per line, so that two results can be diffed. */
export function resultsJson(report: ExhibitReport): string {
  return `${JSON.stringify(report).replaceAll('{"id":', '\n{"id":')}\n`
}

export function reportOf(context: Context, exhibits: Exhibits): ExhibitReport {
  const { workloads, profile, measured, seeds, requests } = context
  const [{ evaluation, calibration }] = workloads
  const section = (title: string, of: readonly Exhibit[], intro?: string) =>
    of.length === 0 ? [] : [{ title, intro, exhibits: of }]
  return rounded({
    title: 'The paper’s figures, reproduced',
    intro: `This page reproduces the figures of the ELDR paper on a simulated cluster that replays the expert choices of ${calibration.model} (${calibration.layers} layers, ${calibration.experts} experts, top-${calibration.topK}), a smaller model than the paper’s, whose experts specialise less. Each of two workloads has ${whole(calibration.requests)} calibration and ${whole(evaluation.requests)} evaluation requests of ${whole(evaluation.decodeSteps)} decode steps. Not shown: Fig. 6 and 10, which are drawings, and Table 1, which times a served system.`,
    facts: [
      ...workloads
        .flatMap(of => [of.calibration, of.evaluation])
        .map(({ name, sha256 }) => ({ term: name, value: `sha256 ${sha256}` })),
      ...[profile, measured]
        .filter((one, at, all) => all.findIndex(({ name }) => name === one.name) === at)
        .map(({ name, provenance }) => ({ term: `Profile ${name}`, value: `${provenance.what}.` })),
      { term: 'Cluster', value: `${TOPOLOGY} unless an exhibit names another` },
      { term: 'Runs', value: `${whole(requests)} requests, ${many(seeds, 'seed')} each` },
      { term: 'ELDR', value: VERSION },
    ],
    sections: [
      ...section('Why expert locality', exhibits.motivation, 'Section 3 of the paper.'),
      ...section('The signature', exhibits.signatures, 'Section 4 of the paper.'),
      ...section(
        'Time per output token',
        exhibits.main,
        'Section 6.1 of the paper, and the prototype of this project.',
      ),
      ...section('Causes of the gains', exhibits.validation, 'Section 6.3 of the paper.'),
      ...section('Other clusters', exhibits.scale, 'Section 6.4 of the paper.'),
      ...section('Beyond the paper', exhibits.beyond),
    ],
    footer: `Made by eldr reproduce from ${listed(workloads.flatMap(of => [of.calibration.name, of.evaluation.name]))}; the same files, profiles and seeds give the same numbers, bit for bit.`,
  })
}
