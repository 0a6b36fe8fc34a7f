import { render } from "preact";
import { App } from "./app";
import { startTheme } from "./parts/theme";
import { listenToKeys } from "./keys";
import { listen } from "./router";
import "./style/page.css";

startTheme();
listen();
listenToKeys();
render(<App />, document.getElementById("app")!);
