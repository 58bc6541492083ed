//! The app by its labels, as people and screen readers find it, and its pictures. Frames are drawn on a software adapter; `window` alone has a window.

mod figures;
mod inside;
mod opening;
mod pictures;
mod timeline;
mod window;
