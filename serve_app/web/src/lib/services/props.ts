import { serverSampling } from '#lib/pure/parameters';
import type { Sampling } from '#lib/types';
import { api } from './api';

/** What `/props` says of a loaded model. */
export interface Props {
	/** What holds where a request says nothing. */
	sampling: Sampling;
	/** Tokens. */
	n_ctx: number;
	modalities: { vision: boolean; audio: boolean };
	/** Of the chat template: `supports_thinking`, `supports_tools` and others. */
	caps: Record<string, boolean>;
}

interface RawProps {
	default_generation_settings?: { params?: Record<string, unknown>; n_ctx?: number };
	modalities?: { vision?: boolean; audio?: boolean };
	chat_template_caps?: Record<string, boolean>;
}

export class PropsService {
	/** An `ApiError` with status 503 while the model is not loaded. */
	static async read(model: string): Promise<Props> {
		const raw = await api.json<RawProps>(`props?model=${encodeURIComponent(model)}`);
		return {
			sampling: serverSampling(raw.default_generation_settings?.params ?? {}),
			n_ctx: raw.default_generation_settings?.n_ctx ?? 0,
			modalities: {
				vision: raw.modalities?.vision === true,
				audio: raw.modalities?.audio === true
			},
			caps: raw.chat_template_caps ?? {}
		};
	}
}
