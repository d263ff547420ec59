export default class Elk {
	layout() {
		return Promise.reject(new Error('The layout "elk" is not part of this page'));
	}
}
