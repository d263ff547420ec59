import { whyUnread, type Modalities } from '#lib/pure/attachments';
import { contentKey, type FileContent } from '#lib/pure/chat_request';
import type { ModelEntry } from '#lib/pure/models';
import { FilesService } from '#lib/services/files';
import type { Attachment, Message } from '#lib/types';
import { conversationsStore } from './conversations.svelte';
import { modelsStore } from './models.svelte';

/** What `model` reads; undefined: the server has no such model, or says it when it is loaded. */
export function modalitiesOf(model: string | null): Modalities | undefined {
	const entry = modelsStore.find(model);
	if (!entry) return undefined;
	const props = modelsStore.props(entry.id);
	if (!props) return entry.modalities;
	return {
		image: entry.modalities?.image || props.modalities.vision,
		audio: entry.modalities?.audio || props.modalities.audio
	};
}

/** The models that read all of these files, for who attached them to one that does not; loaded ones first. */
export function modelsThatRead(files: readonly Attachment[]): string[] {
	const reads = (model: string) => {
		const modalities = modalitiesOf(model);
		return modalities && files.every((file) => !whyUnread(file, model, modalities));
	};
	const found = modelsStore.chatting.filter(({ id, state }) => state !== 'failed' && reads(id));
	const isUp = (one: ModelEntry) => Number(one.state === 'loaded' || one.state === 'asleep');
	return found.sort((a, b) => isUp(b) - isUp(a)).map(({ id }) => id);
}

/**
 * What is sent of the files of a branch. The model is told of what it can't be shown; only what is
 * attached to the question itself has to be there.
 */
export async function contentsOf(
	branch: readonly Message[],
	model: string
): Promise<ReadonlyMap<string, FileContent>> {
	const contents = new Map<string, FileContent>();
	const modalities = modalitiesOf(model);
	const question = branch.findLast((message) => message.role === 'user');
	for (const message of branch)
		for (const attachment of message.attachments) {
			const key = contentKey(attachment);
			if (contents.has(key)) continue;
			contents.set(
				key,
				whyUnread(attachment, model, modalities)
					? { text: '(This file is not shown to you, as you can read text only.)' }
					: await contentOf(attachment, message === question)
			);
		}
	return contents;
}

async function contentOf(attachment: Attachment, needed: boolean): Promise<FileContent> {
	const blob = await conversationsStore.file(attachment.sha256);
	if (blob) return FilesService.content(attachment, blob);
	if (needed)
		throw new Error(
			`${attachment.name} is not in this browser, and the server can't be asked for it.`
		);
	return { text: '(This file is not there any more.)' };
}
