import { freshName, MAX_FILES } from '#lib/pure/attachments';
import { FileRefused, FilesService } from '#lib/services/files';
import { conversationsStore } from '#lib/stores/conversations.svelte';
import { serverStore } from '#lib/stores/server_store.svelte';
import { settingsStore } from '#lib/stores/settings.svelte';
import type { Attachment } from '#lib/types';
import type { UsedDraft } from './draft.svelte';

export interface Preparation {
	id: number;
	name: string;
	/** 0 to 1; null: nobody can say. */
	share: number | null;
	cancel: () => void;
}

/** Files on their way into a draft. */
export function useAttaching(draft: UsedDraft) {
	let preparations = $state.raw<Preparation[]>([]);
	/** Why files were not attached. */
	let refusals = $state.raw<string[]>([]);
	let count = 0;
	/** Calls of `add` that have not ended. */
	let adding = $state(0);

	async function add(files: Iterable<File>): Promise<void> {
		refusals = [];
		adding++;
		try {
			await addAll(files);
		} finally {
			adding--;
		}
	}

	async function addAll(files: Iterable<File>): Promise<void> {
		// One after the other: each may be large.
		for (const file of files) {
			if (draft.attachments.length + preparations.length >= MAX_FILES) {
				refusals = [...refusals, `At most ${MAX_FILES} files can be attached to a message.`];
				return;
			}
			await addOne(file);
		}
	}

	async function addOne(file: File): Promise<void> {
		const controller = new AbortController();
		const id = ++count;
		const of = draft.place;
		const update = (share: number | null) =>
			(preparations = preparations.map((one) => (one.id === id ? { ...one, share } : one)));
		const cancel = () => controller.abort();
		preparations = [...preparations, { id, name: file.name, share: null, cancel }];
		try {
			const { name, blob, as } = await FilesService.prepare(file, {
				max_bytes: serverStore.owner?.limits.max_file_bytes,
				pdfAs: settingsStore.values.pdfAs,
				signal: controller.signal,
				onprogress: update
			});
			const kept = await conversationsStore.putFile(blob);
			if (controller.signal.aborted) return;
			if (draft.place === of) put({ name, ...kept, as });
			else await keep(of, { name, ...kept, as });
		} catch (error) {
			if (!controller.signal.aborted) refusals = [...refusals, whyNot(file.name, error)];
		} finally {
			preparations = preparations.filter((one) => one.id !== id);
		}
	}

	function put(added: Attachment) {
		draft.attachments = withFile(draft.attachments, added);
		draft.changed();
	}

	/** Another chat was opened meanwhile: it belongs to where it was chosen. */
	async function keep(chat: string, added: Attachment) {
		const { text = '', attachments = [] } = (await conversationsStore.draft(chat)) ?? {};
		const all = withFile(attachments, added);
		await conversationsStore.saveDraft({ chat, text, attachments: all });
	}

	return {
		get preparations() {
			return preparations;
		},
		/** Whether files are still to come. */
		get isBusy() {
			return adding > 0;
		},
		get refusals() {
			return refusals;
		},
		add,
		put,
		remove(attachment: Attachment) {
			draft.attachments = draft.attachments.filter((one) => one !== attachment);
			draft.changed();
		},
		forget() {
			refusals = [];
		}
	};
}

function withFile(attachments: Attachment[], added: Attachment): Attachment[] {
	const isThere = attachments.some(
		(one) => one.sha256 === added.sha256 && one.as === added.as && one.name === added.name
	);
	if (isThere) return attachments;
	const names = attachments.map((one) => one.name);
	return [...attachments, { ...added, name: freshName(added.name, names) }];
}

function whyNot(name: string, error: unknown): string {
	if (error instanceof FileRefused) return error.message;
	return `${name} can't be attached: ${error instanceof Error ? error.message : String(error)}`;
}
