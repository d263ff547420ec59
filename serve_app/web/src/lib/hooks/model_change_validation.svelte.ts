import { whyUnread } from '#lib/pure/attachments';
import { modalitiesOf, modelsThatRead } from '#lib/stores/file_contents';
import type { Attachment, Message } from '#lib/types';

/** Whether the model that is chosen reads what is attached, said before anything is sent. */
export function useModelChangeValidation(
	model: () => string | null,
	attachments: () => readonly Attachment[],
	branch: () => readonly Message[]
) {
	const whyNot = (files: readonly Attachment[]) => {
		const name = model();
		if (name === null) return [];
		const modalities = modalitiesOf(name);
		return files.map((file) => whyUnread(file, name, modalities)).filter(Boolean);
	};
	/** Of the message that is being written: it is not sent so. */
	const errors = $derived(whyNot(attachments()));
	/** Of earlier ones: the model is not shown these. */
	const warnings = $derived([...new Set(whyNot(branch().flatMap((one) => one.attachments)))]);
	return {
		get errors() {
			return errors;
		},
		/** A model that reads what is attached, where this one does not. */
		get better(): string | undefined {
			return errors.length > 0 ? modelsThatRead(attachments())[0] : undefined;
		},
		get warnings() {
			return warnings;
		}
	};
}
