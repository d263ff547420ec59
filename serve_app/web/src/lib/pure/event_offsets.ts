/** Where a stream of events can be read on from, for who counts its bytes. */

const LF = 10;
const CR = 13;

export class EventOffsets {
	/** Bytes so far. */
	#read: number;
	/** The line that is being read has nothing in it yet. */
	#empty = true;
	#afterCr = false;

	constructor(from = 0) {
		this.#read = from;
	}

	/** The offset behind the last blank line of `bytes`; undefined if they have none. */
	feed(bytes: Uint8Array): number | undefined {
		let found: number | undefined;
		for (const [index, byte] of bytes.entries()) {
			if (byte === LF && this.#afterCr) {
				// The second half of a line's end.
				this.#afterCr = false;
				if (found === this.#read + index) found += 1;
				continue;
			}
			this.#afterCr = byte === CR;
			if (byte !== LF && byte !== CR) this.#empty = false;
			else {
				if (this.#empty) found = this.#read + index + 1;
				this.#empty = true;
			}
		}
		this.#read += bytes.length;
		return found;
	}
}
