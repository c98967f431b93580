/** The faults of workers with an engine that binds the decode worker before prefill. */
import { faultMatrix } from './fault-matrix.ts'
import { pushEngine } from './push-engine.ts'

faultMatrix(pushEngine())
