// Runs fit_numpy.py.
import { medianRun } from './measure.mjs'

/** BLAS threads help on an idle machine and hurt on a busy one: one run of each decides which is used. */
export async function numpyFit(python, trace, { workers, pairs, seed, repeat, out }) {
  const args = [trace, '--workers', workers, '--pairs', pairs, '--seed', seed, '--out', out, '--json'].map(
    String,
  )
  const one = { OPENBLAS_NUM_THREADS: '1', MKL_NUM_THREADS: '1', OMP_NUM_THREADS: '1' }
  const [all, single] = [await python.run('fit_numpy.py', args), await python.run('fit_numpy.py', args, one)]
  const env = single.wallMs < all.wallMs ? one : {}
  // The two above have warmed up.
  const run = await medianRun(repeat, () => python.run('fit_numpy.py', args, env), 0)
  return { ...run, env, threads: env === one ? 'one' : 'all' }
}
