// Unpacks Chromium into the folder for temporary files, once, and says where it is. The package's own
// arguments are left alone: they switch web security off.
import chromium from '@sparticuz/chromium';
console.log(await chromium.executablePath());
