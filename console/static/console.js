// What every page loads. Pages work without it: it only adds.
import { showTimes } from "./times.js";
import { listenToKeys } from "./keys.js";
import { followEvents } from "./live.js";

showTimes(document.body);
listenToKeys();
if (document.querySelector("[data-plot]")) {
  import("./plots.js").then((plots) => plots.drawPlots());
}
if (document.body.dataset.events && document.querySelector("[data-live]")) {
  followEvents(document.body.dataset.events);
}
