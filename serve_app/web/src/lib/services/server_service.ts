import { api, ApiError, uiUrl } from './api';

/** `./api/me`: whose chats these are and where they are kept. */
export interface Owner {
	owner: string;
	store: 'server' | 'none';
	/** One owner for all who can open the page. */
	shared: boolean;
	limits: Record<string, number>;
	used_bytes?: number;
	/** The operator's settings for new users, by the names of the page's settings. */
	defaults: Record<string, unknown>;
}

const NO_STORE: Owner = { owner: '', store: 'none', shared: true, limits: {}, defaults: {} };

export class ServerService {
	/** An `ApiError`: 401 where a key is needed, 0 where nothing answers. */
	static async me(): Promise<Owner> {
		try {
			return { ...NO_STORE, ...(await api.json<Partial<Owner>>(uiUrl('api/me'))) };
		} catch (error) {
			// 403: nobody has a key, and the store is not reached by this name of the server.
			if (error instanceof ApiError && [403, 404, 501].includes(error.status)) return NO_STORE;
			throw error;
		}
	}

	/** Whether the key in use is taken by the models' side too; its models may be away all the same. */
	static async check(): Promise<void> {
		try {
			await api.json('v1/models');
		} catch (error) {
			if (!(error instanceof ApiError && error.status >= 500)) throw error;
		}
	}
}
